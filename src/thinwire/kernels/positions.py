"""Sorted positions in a vector, coded in a size that only the two counts decide.

Few of many (Elias-Fano): a position is cut into `low` bits, sent as they are, and the rest, sent as a bitmap in which
the i-th one stands at (position >> low) + i; for k of n that is about k * (2 + log2(n / k)) bits. Where a bitmap of the
whole vector is no longer than that, it is sent instead; and none or all of the positions need not be told.
"""

import torch
from torch import Tensor

from ..core import PayloadError
from .bits import pack, packed_bytes, unpack


def coded_bytes(count: int, size: int) -> int:
    if count in (0, size):
        return 0
    return min(packed_bytes(size, 1), _cut_bytes(count, size))


def encode(positions: Tensor, size: int) -> Tensor:
    """Code strictly increasing positions in [0, size) as uint8."""
    count, device = positions.numel(), positions.device
    if count in (0, size):
        return torch.empty(0, dtype=torch.uint8, device=device)
    if not _is_cut(count, size):
        return pack(_marks(positions, size), 1)
    low = _low_bits(count, size)
    rest = (positions >> low) + torch.arange(count, device=device)
    return torch.cat([pack(positions & (2**low - 1), low), pack(_marks(rest, _rest_bits(count, size)), 1)])


def decode(coded: Tensor, count: int, size: int) -> Tensor:
    """The positions that `encode` coded, or a PayloadError: whatever the bytes, they are in range and increase."""
    if coded.dtype != torch.uint8 or count > size or coded.numel() != coded_bytes(count, size):
        raise PayloadError(f"{coded.numel()} bytes cannot code {count} positions in a vector of {size}")
    if count in (0, size):
        return torch.arange(count, device=coded.device)
    if not _is_cut(count, size):
        return _marked(coded, size, count)
    low = _low_bits(count, size)
    split = packed_bytes(count, low)
    high = _marked(coded[split:], _rest_bits(count, size), count) - torch.arange(count, device=coded.device)
    positions = (high << low) | unpack(coded[:split], count, low).long()
    if int(positions[-1]) >= size or bool((positions.diff() <= 0).any()):
        raise PayloadError(f"positions are not increasing within a vector of {size}")
    return positions


def _is_cut(count: int, size: int) -> bool:
    return _cut_bytes(count, size) < packed_bytes(size, 1)


def _cut_bytes(count: int, size: int) -> int:
    return packed_bytes(count, _low_bits(count, size)) + packed_bytes(_rest_bits(count, size), 1)


def _low_bits(count: int, size: int) -> int:
    return max(0, (size // count).bit_length() - 1)


def _rest_bits(count: int, size: int) -> int:
    return count + (size >> _low_bits(count, size)) + 1


def _marks(positions: Tensor, size: int) -> Tensor:
    marks = torch.zeros(size, dtype=torch.uint8, device=positions.device)
    marks[positions] = 1
    return marks


def _marked(packed: Tensor, size: int, count: int) -> Tensor:
    marked = unpack(packed, size, 1).nonzero().squeeze(1)
    if marked.numel() != count:
        raise PayloadError(f"the bitmap of positions marks {marked.numel()} of them, not {count}")
    return marked
