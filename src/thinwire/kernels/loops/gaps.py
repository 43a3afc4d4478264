"""Rice coding of gaps; the twins are in kernels/gaps.py. Lanes are described in bits.py."""

import numpy as np

from .bits import Bytes, Integers, unpack_range
from .jit import compiled

STRETCH = 1024  # positions whose low bits are unpacked together, in the cache


@compiled()
def gaps_of(positions: Integers, least: int, gaps: Integers, rests: Integers) -> None:
    """The gaps before positions (at least one), and the four sums of gaps >> least, least + 1, ..."""
    before, after, between = positions[: len(positions) - 1], positions[1:], gaps[1:]
    gaps[0] = positions[0]
    a = np.uint64(positions[0]) >> np.uint64(least)
    b, c, d = a >> np.uint64(1), a >> np.uint64(2), a >> np.uint64(3)
    for i in range(len(between)):
        gap = after[i] - before[i] - 1
        between[i] = gap
        rest = np.uint64(gap) >> np.uint64(least)
        a += rest
        b += rest >> np.uint64(1)
        c += rest >> np.uint64(2)
        d += rest >> np.uint64(3)
    rests[0], rests[1], rests[2], rests[3] = a, b, c, d


@compiled()
def mark_gaps(gaps: Integers, low: int, bitmap: Bytes) -> None:
    """Write the rests of the gaps in unary, each as that many zeros and a one, to a bitmap with room for all."""
    bitmap[:] = 0
    rows, at, bit = np.uint64(len(bitmap)), np.uint64(0), np.uint8(1)
    for i in range(len(gaps)):
        at += np.uint64(gaps[i]) >> np.uint64(low)
        while at >= rows:
            at -= rows
            bit = np.uint8(bit << 1)
        bitmap[at] |= bit
        at += np.uint64(1)


@compiled()
def join_gaps(ones: Integers, first: int, lows: Bytes, count: int, low: int) -> int:
    """Replace the positions of ones (where rests end) by the coded positions, from index `first` of `count` on.

    The low bits of gaps before `first` are missing in them. Returns the sum of (low bits + 1) over these gaps, for the
    caller to add to later stretches.
    """
    scratch, byte = np.empty(STRETCH, np.int64), np.empty(STRETCH, np.uint8)
    so_far = -1
    for start in range(0, len(ones), STRETCH):
        some = ones[start : start + STRETCH]
        below = scratch[: len(some)]
        unpack_range(lows, count, low, first + start, byte[: len(some)], below)
        for i in range(len(some)):
            so_far += below[i] + 1
            below[i] = so_far
        for i in range(len(some)):
            some[i] = ((some[i] - (first + start + i)) << low) + below[i]
    return so_far + 1
