"""Norms of blocks. Squares are summed in 64 bits, in an order that depends on the sizes only: loops and torch agree."""

import numpy as np
import torch
from torch import Tensor

from . import quantization as quantize
from .compiled import loops_for, vector
from .layout import ABREAST, STRETCH
from .quantization import in_blocks
from .threads import spread


def norms(flat: Tensor, block: int, power: float) -> Tensor:
    """(sum |x|^power)^(1/power) of each block; the largest magnitude if the power is infinite. NaN if an entry is."""
    if power == torch.inf:
        return largest(flat, block)
    if power == 2 and flat.dtype == torch.float32:
        return _within(_squares(flat, block).cumsum(1)[:, -1].sqrt_(), torch.float32)
    most = largest(flat, block)
    sizes = in_blocks(flat, block).double().abs() / most.double().clamp_min(torch.finfo(torch.float64).tiny)[:, None]
    return _within(most.double() * sizes.pow(power).sum(1).pow(1 / power), flat.dtype)


def _within(norm: Tensor, dtype: torch.dtype) -> Tensor:
    """Norms, clamped to the range of the type unless entries are not finite."""
    limit = torch.finfo(dtype).max
    norm = norm.where(norm.isinf(), norm.clamp(max=limit)).to(dtype)
    return norm.masked_fill_(norm.isnan(), torch.nan)


def largest(flat: Tensor, block: int) -> Tensor:
    """The largest magnitude in each block; NaN if an entry is NaN."""
    loops = loops_for(flat)
    if loops is None:
        return quantize.largest(flat, block)
    rows, columns, length = _stretches(flat, block)
    found = torch.empty(rows, columns)
    bits, out = vector(flat).view(np.int32), found.numpy()
    spread(lambda i, end: loops.largest(bits, block, i // length, end // length, out), rows * columns * length, length)
    return found.amax(1) if columns else found.new_empty(rows)


def _stretches(flat: Tensor, block: int) -> tuple[int, int, int]:
    """The number of blocks, the number of stretches per block, and the length of a stretch."""
    length = min(block, STRETCH)
    return -(-flat.numel() // block), -(-min(block, max(flat.numel(), 1)) // length), length


def _squares(flat: Tensor, block: int) -> Tensor:
    """The sum of squares of each stretch of each block."""
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
    parallel = squares.view(rows, columns, padded // ABREAST, ABREAST).cumsum(2)[:, :, -1]
    while parallel.shape[2] > 1:
        half = parallel.shape[2] // 2
        parallel = parallel[:, :, :half] + parallel[:, :, half:]
    return parallel.squeeze(2)
