"""Sorted positions in a vector, Rice-coded by the gaps between them: the length depends on the positions.

A gap is split into its `low` lowest bits, sent as they are, and the rest, sent in unary: that many zeros and a one. For
random positions, this is within 1 % of the entropy. A code of fixed length (positions.py) takes up to half a bit more
per position.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..core import PayloadError
from .bitmaps import count_bits, set_positions
from .bits import pack, packed_bytes, unpack
from .compiled import loops_for, vector
from .scratch import scratch

MOST_LOW = 40  # low bits; no vector has more than 2**40 entries
CHOICES = 4  # values of `low` that are tried


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
    counts, low = count_bits(rests, 8 * rests.numel()), int(lows[0])
    count = sum(counts)
    if count > size or low > MOST_LOW or lows.numel() != 1 + packed_bytes(count, low):
        raise PayloadError(f"{lows.numel()} bytes cannot be the low {low} bits of {count} positions")
    loops = loops_for(lows, dtype=torch.uint8) if (8 * size).bit_length() + low < 62 else None  # no overflow

    def join(first: int, ones: Tensor) -> tuple[int, int]:
        return first, loops.join_gaps(vector(ones), first, vector(lows[1:]), count, low) if loops else 0

    positions, stretches = set_positions(rests, 8 * rests.numel(), counts, join)
    if loops is None:
        positions = _joined(positions, lows[1:], low, size)
    below = 0
    for (first, low_bits), (end, _) in pairwise([*stretches, (count, 0)] if loops else ()):
        if below:  # join_gaps starts at 0 in each stretch
            vector(positions[first:end])[:] += below
        below += low_bits
    if count and int(positions[-1]) >= size:
        raise PayloadError(f"positions are not within a vector of {size}")
    return positions


def _joined(ones: Tensor, lows: Tensor, low: int, size: int) -> Tensor:
    """The positions; for gaps that are too large they are out of range, but never overflow 64 bits."""
    high = torch.diff(ones, prepend=ones.new_full((1,), -1)) - 1
    gaps = (high.clamp_max_((size >> low) + 1) << low) | unpack(lows, ones.numel(), low).long()
    return (gaps.clamp_max_(size) + 1).cumsum(0) - 1


def _least_low(count: int, size: int) -> int:
    """The smallest `low` to try: about the bits of the mean gap, less CHOICES - 1 for gaps that differ much."""
    return max(0, max(1, size // max(1, count)).bit_length() - CHOICES + 1)
