"""Sorted positions in a vector, coded in a size that only the two counts decide (Elias-Fano).

A position is cut into `low` bits, sent as they are, and the rest, sent as a bitmap in which the i-th one stands at
(position >> low) + i. For k of n that is about k * (2 + log2(n / k)) bits, within half a bit of the least possible.
"""

import torch
from torch import Tensor

from ..core import PayloadError
from .bits import pack, packed_bytes, unpack


def _low_bits(count: int, size: int) -> int:
    return max(0, (size // max(count, 1)).bit_length() - 1)


def _bitmap_bits(count: int, size: int) -> int:
    return count + (size >> _low_bits(count, size)) + 1 if count else 0


def coded_bytes(count: int, size: int) -> int:
    return packed_bytes(count, _low_bits(count, size)) + packed_bytes(_bitmap_bits(count, size), 1)


def encode(positions: Tensor, size: int) -> Tensor:
    """Code strictly increasing positions in [0, size) as uint8."""
    count = positions.numel()
    low = _low_bits(count, size)
    bitmap = torch.zeros(_bitmap_bits(count, size), dtype=torch.uint8, device=positions.device)
    bitmap[(positions >> low) + torch.arange(count, device=positions.device)] = 1
    return torch.cat([pack(positions & (2**low - 1), low), pack(bitmap, 1)])


def decode(coded: Tensor, count: int, size: int) -> Tensor:
    """The positions that `encode` coded, or a PayloadError: whatever the bytes, they are in range and increase."""
    if coded.dtype != torch.uint8 or count > size or coded.numel() != coded_bytes(count, size):
        raise PayloadError(f"{coded.numel()} bytes cannot code {count} positions in a vector of {size}")
    low = _low_bits(count, size)
    split = packed_bytes(count, low)
    ones = unpack(coded[split:], _bitmap_bits(count, size), 1).nonzero().squeeze(1)
    if ones.numel() != count:
        raise PayloadError(f"the bitmap of positions marks {ones.numel()} of them, not {count}")
    high = ones - torch.arange(count, device=coded.device)
    positions = (high << low) | unpack(coded[:split], count, low).long()
    if count and (int(positions[-1]) >= size or bool((positions.diff() <= 0).any())):
        raise PayloadError(f"positions are not increasing within a vector of {size}")
    return positions
