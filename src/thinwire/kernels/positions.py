"""Sorted positions in a vector, coded in a length that depends only on their number and the vector's size.

Elias-Fano: a position is split into its `low` lowest bits, sent as they are, and the rest, sent as a bitmap in which
the i-th one stands at (position >> low) + i; for k of n positions that is about k * (2 + log2(n / k)) bits. Where a
bitmap of the whole vector is no longer, it is sent instead. If no or all positions are sent, the code is empty.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from ..core import PayloadError
from .bitmaps import count_bits, set_positions
from .bits import pack, packed_bytes, unpack
from .compiled import loops_for, vector

Result = TypeVar("Result")


def coded_bytes(count: int, size: int) -> int:
    if count in (0, size):
        return 0
    return min(packed_bytes(size, 1), _split_bytes(count, size))


def encode(positions: Tensor, size: int) -> Tensor:
    """Code strictly increasing positions in [0, size) as uint8."""
    count, device = positions.numel(), positions.device
    if count in (0, size):
        return torch.empty(0, dtype=torch.uint8, device=device)
    if not _is_split(count, size):
        return _bitmap(positions, size)
    low = _low_bits(count, size)
    loops = loops_for(positions, dtype=torch.int64)
    if loops is None:
        rest = (positions >> low) + torch.arange(count, device=device)
        return torch.cat([pack(positions & (2**low - 1), low), _bitmap(rest, _rest_bits(count, size))])
    split = packed_bytes(count, low)
    coded = torch.empty(coded_bytes(count, size), dtype=torch.uint8)
    loops.pack(vector(positions), low, vector(coded[:split]))
    loops.mark(vector(positions), low, 1, vector(coded[split:]))
    return coded


def decode(coded: Tensor, count: int, size: int) -> Tensor:
    """The positions that `encode` coded, or a PayloadError: whatever the bytes, they are in range and increase."""
    if coded.dtype != torch.uint8 or count > size or coded.numel() != coded_bytes(count, size):
        raise PayloadError(f"{coded.numel()} bytes cannot code {count} positions in a vector of {size}")
    if count in (0, size):
        return torch.arange(count, device=coded.device)
    if not _is_split(count, size):
        return _set_positions(coded, size, count, lambda first, ones: None)[0]
    low = _low_bits(count, size)
    split = packed_bytes(count, low)
    loops = loops_for(coded, dtype=torch.uint8)

    def join(first: int, ones: Tensor) -> tuple[int, bool]:
        return first, loops.join_positions(vector(ones), first, vector(coded[:split]), count, low) if loops else True

    positions, stretches = _set_positions(coded[split:], _rest_bits(count, size), count, join)
    if loops is None:
        high = positions - torch.arange(count, device=coded.device)
        positions = (high << low) | unpack(coded[:split], count, low).long()
        increasing = bool((positions.diff() > 0).all())
    else:
        starts = [first for first, _ in stretches if 0 < first < count]
        increasing = all(increase for _, increase in stretches) and all(positions[i - 1] < positions[i] for i in starts)
    if int(positions[-1]) >= size or not increasing:
        raise PayloadError(f"positions are not increasing within a vector of {size}")
    return positions


def _is_split(count: int, size: int) -> bool:
    return _split_bytes(count, size) < packed_bytes(size, 1)


def _split_bytes(count: int, size: int) -> int:
    return packed_bytes(count, _low_bits(count, size)) + packed_bytes(_rest_bits(count, size), 1)


def _low_bits(count: int, size: int) -> int:
    return max(0, (size // count).bit_length() - 1)


def _rest_bits(count: int, size: int) -> int:
    return count + (size >> _low_bits(count, size)) + 1


def _bitmap(positions: Tensor, size: int) -> Tensor:
    loops = loops_for(positions, dtype=torch.int64)
    if loops is not None:
        bitmap = torch.empty(packed_bytes(size, 1), dtype=torch.uint8)
        loops.mark(vector(positions), 0, 0, vector(bitmap))
        return bitmap
    marks = torch.zeros(size, dtype=torch.uint8, device=positions.device)
    marks[positions] = 1
    return pack(marks, 1)


def _set_positions(
    bitmap: Tensor, size: int, count: int, then: Callable[[int, Tensor], Result]
) -> tuple[Tensor, list[Result]]:
    counts = count_bits(bitmap, size)
    if sum(counts) != count:
        raise PayloadError(f"the bitmap has {sum(counts)} positions, not {count}")
    return set_positions(bitmap, size, counts, then)
