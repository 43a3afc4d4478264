"""Elias-Fano coding of positions; the twins are in kernels/positions.py. Lanes are described in bits.py."""

import numpy as np

from .bits import Bytes, Integers, unpack_range
from .jit import compiled

STRETCH = 1024  # positions whose low bits are unpacked together, in the cache


@compiled()
def mark(positions: Integers, low: int, step: int, bitmap: Bytes) -> None:
    """Set bit (position >> low) + i * step for the i-th position; clears the bitmap, which has room for all, first."""
    bitmap[:] = 0
    rows, base, bit = np.uint64(len(bitmap)), np.uint64(0), np.uint8(1)
    before = np.uint64(0)
    for i in range(len(positions)):
        at = (np.uint64(positions[i]) >> np.uint64(low)) + before - base
        while at >= rows:
            at -= rows
            base += rows
            bit = np.uint8(bit << 1)
        bitmap[at] |= bit
        before += np.uint64(step)


@compiled()
def join_positions(ones: Integers, first: int, lows: Bytes, count: int, low: int) -> bool:
    """Replace the positions of ones (the high parts) by the coded positions, from index `first` of `count` on.

    Returns whether they increase.
    """
    scratch, byte = np.empty(STRETCH, np.int64), np.empty(STRETCH, np.uint8)
    last, falls = np.int64(-1), 0
    for start in range(0, len(ones), STRETCH):
        some = ones[start : start + STRETCH]
        below = scratch[: len(some)]
        unpack_range(lows, count, low, first + start, byte[: len(some)], below)
        for i in range(len(some)):
            some[i] = ((some[i] - (first + start + i)) << low) | below[i]
        falls += some[0] <= last
        last = some[len(some) - 1]
        before, after = some[: len(some) - 1], some[1:]
        for i in range(len(after)):
            falls += after[i] <= before[i]
    return falls == 0
