"""Norms of blocks. Squares are summed in 64 bits and in an order that the sizes alone decide, whoever does it."""

import numpy as np
import torch
from torch import Tensor

from . import quantization as quantize
from .compiled import loops_for, vector
from .layout import ABREAST, STRETCH
from .quantization import in_blocks
from .threads import spread


def norms(flat: Tensor, block: int, power: float) -> Tensor:
    """(sum |x|^power)^(1/power) of each block: an infinite power is the largest size; NaN where there is one."""
    if power == torch.inf:
        return largest(flat, block)
    if power == 2 and flat.dtype == torch.float32:
        return _within(_squares(flat, block).cumsum(1)[:, -1].sqrt_(), torch.float32)
    most = largest(flat, block)
    sizes = in_blocks(flat, block).double().abs() / most.double().clamp_min(torch.finfo(torch.float64).tiny)[:, None]
    return _within(most.double() * sizes.pow(power).sum(1).pow(1 / power), flat.dtype)


def _within(norm: Tensor, dtype: torch.dtype) -> Tensor:
    """Norms, no larger than a type has numbers for; one that is not finite is of entries that are not."""
    limit = torch.finfo(dtype).max
    norm = norm.where(norm.isinf(), norm.clamp(max=limit)).to(dtype)
    return norm.masked_fill_(norm.isnan(), torch.nan)


def largest(flat: Tensor, block: int) -> Tensor:
    """The largest size in each block; NaN if there is one."""
    loops = loops_for(flat)
    if loops is None:
        return quantize.largest(flat, block)
    rows, columns, length = _stretches(flat, block)
    found = torch.empty(rows, columns)
    bits, out = vector(flat).view(np.int32), found.numpy()
    spread(lambda i, end: loops.peaks(bits, block, i // length, end // length, out), rows * columns * length, length)
    return found.amax(1) if columns else found.new_empty(rows)


def _stretches(flat: Tensor, block: int) -> tuple[int, int, int]:
    """How many blocks, how many stretches in each, and how long one is."""
    length = min(block, STRETCH)
    return -(-flat.numel() // block), -(-min(block, max(flat.numel(), 1)) // length), length


def _squares(flat: Tensor, block: int) -> Tensor:
    """The sums of the stretches of every block."""
    rows, columns, length = _stretches(flat, block)
    loops = loops_for(flat)
    if loops is not None:
        sums = torch.empty(rows, columns, dtype=torch.float64)
        x, out = vector(flat), sums.numpy()
        spread(lambda i, end: loops.squares(x, block, i // length, end // length, out), sums.numel() * length, length)
        return sums
    squares = in_blocks(flat, block).double().square()
    padded = -(-length // ABREAST) * ABREAST
    squares = torch.nn.functional.pad(squares, (0, columns * padded - squares.shape[1]))
    abreast = squares.view(rows, columns, padded // ABREAST, ABREAST).cumsum(2)[:, :, -1]
    while abreast.shape[2] > 1:
        half = abreast.shape[2] // 2
        abreast = abreast[:, :, :half] + abreast[:, :, half:]
    return abreast.squeeze(2)
