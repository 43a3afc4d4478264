"""Sorted positions in a vector, coded by the gaps between them, as short as the gaps allow.

Rice's code: a gap is cut into `low` bits, sent as they are, and the rest, sent as that many zeros and a one. Where the
positions are drawn by chance, this is within 1 % of the least possible; a size that only the counts decide costs up to
half a bit a position more (positions.py).
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..core import PayloadError
from .bitmaps import counted, marked
from .bits import pack, packed_bytes, unpack
from .compiled import loops_for, vector
from .scratch import scratch

MOST_LOW = 40  # no vector is longer
CHOICES = 4  # numbers of low bits that are tried


def encode(positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Code strictly increasing positions in [0, size) as uint8: the rests of the gaps, and their low bits."""
    count, device = positions.numel(), positions.device
    least = _least_low(count, size)
    loops = loops_for(positions, dtype=torch.int64) if count else None
    if loops is not None:
        gaps = torch.from_numpy(scratch("gaps", count, np.int64))
        rests = torch.empty(CHOICES, dtype=torch.int64)
        loops.gaps_of(vector(positions), least, vector(gaps), vector(rests))
    else:
        gaps = torch.diff(positions, prepend=positions.new_full((1,), -1)) - 1
        rests = torch.stack([(gaps >> low).sum() for low in range(least, least + CHOICES)])
    low, rest = min(enumerate(rests.tolist(), least), key=lambda choice: count * choice[0] + choice[1])
    if loops is not None:
        marks = torch.empty(packed_bytes(count + rest, 1), dtype=torch.uint8)
        lows = torch.empty(1 + packed_bytes(count, low), dtype=torch.uint8)
        lows[0] = low
        loops.mark_gaps(vector(gaps), low, vector(marks))
        loops.pack(vector(gaps), low, vector(lows[1:]))
        return marks, lows
    marks = torch.zeros(count + rest, dtype=torch.uint8, device=device)
    marks[(gaps >> low).cumsum(0) + torch.arange(count, device=device)] = 1
    width = torch.tensor([low], dtype=torch.uint8, device=device)
    return pack(marks, 1), torch.cat([width, pack(gaps & (2**low - 1), low)])


def decode(rests: Tensor, lows: Tensor, size: int) -> Tensor:
    """The positions that `encode` coded, or a PayloadError: whatever the bytes, they are in range and increase."""
    if rests.dtype != torch.uint8 or lows.dtype != torch.uint8 or lows.numel() < 1 or rests.numel() > size:
        raise PayloadError(f"{rests.numel()} and {lows.numel()} bytes cannot code positions in a vector of {size}")
    counts, low = counted(rests, 8 * rests.numel()), int(lows[0])
    count = sum(counts)
    if count > size or low > MOST_LOW or lows.numel() != 1 + packed_bytes(count, low):
        raise PayloadError(f"{lows.numel()} bytes cannot be the low {low} bits of {count} positions")
    loops = loops_for(lows, dtype=torch.uint8) if (8 * size).bit_length() + low < 62 else None  # no sum is larger

    def join(first: int, ones: Tensor) -> tuple[int, int]:
        return first, loops.join_gaps(vector(ones), first, vector(lows[1:]), count, low) if loops else 0

    positions, stretches = marked(rests, 8 * rests.numel(), counts, join)
    if loops is None:
        positions = _joined(positions, lows[1:], low, size)
    below = 0
    for (first, low_bits), (end, _) in pairwise([*stretches, (count, 0)] if loops else ()):
        if below:  # which they did not know of
            vector(positions[first:end])[:] += below
        below += low_bits
    if count and int(positions[-1]) >= size:
        raise PayloadError(f"positions are not within a vector of {size}")
    return positions


def _joined(ones: Tensor, lows: Tensor, low: int, size: int) -> Tensor:
    """The positions; where a gap is too large they are too, but never too large for 64 bits."""
    whole = torch.diff(ones, prepend=ones.new_full((1,), -1)) - 1
    gaps = (whole.clamp_max_((size >> low) + 1) << low) | unpack(lows, ones.numel(), low).long()
    return (gaps.clamp_max_(size) + 1).cumsum(0) - 1


def _least_low(count: int, size: int) -> int:
    """The fewest low bits that may be best: about as many as a usual gap has, or less if gaps differ much."""
    return max(0, max(1, size // max(1, count)).bit_length() - CHOICES + 1)
