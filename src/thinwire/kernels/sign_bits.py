"""Signs, and ternary codes, with the mean magnitude.

Sums are taken in 64 bits, in the order that loops/sign_bits.py describes. So they depend neither on the number of
threads nor on the device.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .bits import pack, packed_bytes
from .buffers import side_by_side
from .compiled import loops_for, vector
from .layout import ABREAST, PIECE
from .threads import spread


def signs(flat: Tensor) -> tuple[Tensor, Tensor]:
    """One packed bit per entry, set if it is negative, and the mean magnitude."""
    size, rows = flat.numel(), packed_bytes(flat.numel(), 1)
    loops = loops_for(flat)
    if loops is None:
        total = _in_order(_sums(flat.abs(), 8))
        return pack((flat < 0).to(torch.uint8), 1), _mean(total, size, flat)
    packed, scale = side_by_side(rows, 1, torch.float32)
    sums = torch.empty(8, -(-rows // PIECE), dtype=torch.float64)
    spread(lambda start, stop: loops.signs(vector(flat), start, stop, sums.numpy(), vector(packed)), rows, PIECE)
    scale.copy_(_mean(_in_order(sums), size, flat))
    return packed, scale.squeeze(0)


def ternary(flat: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Two packed bits per entry, and the mean magnitude of large entries.

    The code is 2 for large positive entries, 0 for large negative ones, and 1 for all outputs. Large means above
    `threshold` times the mean magnitude.
    """
    size, rows = flat.numel(), packed_bytes(flat.numel(), 2)
    loops = loops_for(flat)
    if loops is None:
        total = _in_order(_sums(flat.abs(), 4))
        least = _least(threshold, total, size, flat.dtype)
        large = flat.abs().where(flat.abs() > least, 0)
        large_total, count = _in_order(_sums(large, 4)), int((flat.abs() > least).sum())
        codes = (flat > least).to(torch.uint8) + (flat >= -least).to(torch.uint8)
        return pack(codes, 2), _mean(large_total if total < torch.inf else torch.nan, count, flat)
    x, sums = vector(flat), torch.empty(4, -(-rows // PIECE), dtype=torch.float64)
    spread(lambda start, stop: loops.magnitudes(x, rows, start, stop, sums.numpy()), rows, PIECE)
    total = _in_order(sums)
    least = _least(threshold, total, size, flat.dtype)
    packed, scale = side_by_side(rows, 1, torch.float32)
    counts = torch.empty(sums.shape, dtype=torch.int64)
    outputs = sums.numpy(), counts.numpy(), vector(packed)
    spread(lambda start, stop: loops.ternary(x, np.float32(least), start, stop, *outputs), rows, PIECE)
    large_total, count = _in_order(sums), int(counts.numpy().sum())
    scale.copy_(_mean(large_total if total < torch.inf else torch.nan, count, flat))
    return packed, scale.squeeze(0)


def _least(threshold: float, total: float, size: int, dtype: torch.dtype) -> float:
    return float(torch.tensor(threshold * total / max(size, 1), dtype=torch.float64).to(dtype))


def _mean(total: float, count: int, like: Tensor) -> Tensor:
    mean = total / max(count, 1)
    return torch.tensor(mean if mean == mean else torch.nan, dtype=torch.float64).to(like)


def _in_order(sums: Tensor) -> float:
    """The sequential sum."""
    return float(sums.view(-1).cumsum(0)[-1]) if sums.numel() else 0.0


def _sums(sizes: Tensor, lanes: int) -> Tensor:
    """The sum of each piece of every lane."""
    rows = -(-sizes.numel() // lanes)
    return torch.cat([_sums_of_lane(sizes[lane * rows : (lane + 1) * rows], rows) for lane in range(lanes)])


def _sums_of_lane(sizes: Tensor, rows: int) -> Tensor:
    pieces = pad(sizes, (0, -(-rows // PIECE) * PIECE - sizes.numel())).view(-1, PIECE // 128, 4, ABREAST)
    fours = (pieces[:, :, 0] + pieces[:, :, 1]) + (pieces[:, :, 2] + pieces[:, :, 3])
    sums = _halved(_added(fours))
    large = ~sums.isfinite()  # groups of four overflow 32 bits, or an entry is not finite
    sums[large] = _halved(_added(pieces[large].view(-1, PIECE // ABREAST, ABREAST)))
    return sums


def _added(rows: Tensor) -> Tensor:
    """The sequential sum over the rows, in 64 bits."""
    total = rows[:, 0].double()
    for i in range(1, rows.shape[1]):
        total = total + rows[:, i].double()
    return total


def _halved(x: Tensor) -> Tensor:
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = x[:, :half] + x[:, half:]
    return x.squeeze(1)
