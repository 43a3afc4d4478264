"""Sorted positions in a vector, coded by the gaps between them, as short as the gaps allow.

Rice's code: a gap is cut into `low` bits, sent as they are, and the rest, sent as that many zeros and a one. Where the
positions are drawn by chance, this is within 1 % of the least possible; a size that only the counts decide costs up to
half a bit a position more (positions.py).
"""

import torch
from torch import Tensor

from ..core import PayloadError
from .bits import pack, packed_bytes, unpack

MOST_LOW = 40  # no vector is longer


def encode(positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Code strictly increasing positions in [0, size) as uint8: the rests of the gaps, and their low bits."""
    count, device = positions.numel(), positions.device
    gaps = torch.diff(positions, prepend=positions.new_full((1,), -1)) - 1
    low = min(_choices(count, size), key=lambda low: count * low + int((gaps >> low).sum()))
    ones = (gaps >> low).cumsum(0) + torch.arange(count, device=device)
    marks = torch.zeros(int(ones[-1]) + 1 if count else 0, dtype=torch.uint8, device=device)
    marks[ones] = 1
    width = torch.tensor([low], dtype=torch.uint8, device=device)
    return pack(marks, 1), torch.cat([width, pack(gaps & (2**low - 1), low)])


def decode(rests: Tensor, lows: Tensor, size: int) -> Tensor:
    """The positions that `encode` coded, or a PayloadError: whatever the bytes, they are in range and increase."""
    if rests.dtype != torch.uint8 or lows.dtype != torch.uint8 or lows.numel() < 1 or rests.numel() > size:
        raise PayloadError(f"{rests.numel()} and {lows.numel()} bytes cannot code positions in a vector of {size}")
    ones = unpack(rests, 8 * rests.numel(), 1).nonzero().squeeze(1)
    count, low = ones.numel(), int(lows[0])
    if count > size or low > MOST_LOW or lows.numel() != 1 + packed_bytes(count, low):
        raise PayloadError(f"{lows.numel()} bytes cannot be the low {low} bits of {count} positions")
    whole = torch.diff(ones, prepend=ones.new_full((1,), -1)) - 1
    gaps = (whole << low) | unpack(lows[1:], count, low).long()
    if count and not (int(gaps.max()) < size and int((gaps + 1).cumsum(0)[-1]) <= size):
        raise PayloadError(f"positions are not within a vector of {size}")
    return (gaps + 1).cumsum(0) - 1


def _choices(count: int, size: int) -> range:
    """How many low bits may be best: about as many as a usual gap has, and one less if gaps differ much."""
    usual = max(1, size // max(1, count)).bit_length()
    return range(max(0, usual - 3), usual + 1)
