"""Sorted positions, coded and decoded; the twins are in gaps.py and positions.py.

What is packed lies in lanes: byte j holds the entries j, j + m, j + 2m, ... of m bytes. So loops go along a lane, where
neighbors are neighbors, and most become vector instructions.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

STRETCH = 1024  # entries that are joined of their fields in the cache


@compiled()
def _widest(bits: int) -> int:
    """The widest field of so many bits."""
    return 8 if bits >= 8 else 4 if bits >= 4 else 2 if bits >= 2 else 1


@compiled()
def pack(codes: Integers, width: int, out: Bytes) -> None:
    """All fields of the codes, each in its lanes."""
    count, shift, start = len(codes), 0, 0
    while shift < width:
        bits = _widest(width - shift)
        rows = (count * bits + 7) // 8
        field = out[start : start + rows]
        mask = (1 << bits) - 1
        for lane in range(8 // bits):
            some, up = codes[min(lane * rows, count) : min((lane + 1) * rows, count)], lane * bits
            if lane == 0:
                for j in range(len(some)):
                    field[j] = (some[j] >> shift) & mask
            else:
                for j in range(len(some)):
                    field[j] |= ((some[j] >> shift) & mask) << up
        start += rows
        shift += bits


@compiled()
def _some(packed: Bytes, count: int, width: int, first: int, byte: Bytes, out: Integers) -> None:
    """The packed codes from the first on, as many as there is room for; eight bits of each at a time."""
    shift = start = 0
    while shift == 0 or shift < width:
        byte[:] = 0
        filled = 0
        while shift + filled < width and filled < 8:
            bits = _widest(width - shift - filled)
            rows = (count * bits + 7) // 8
            mask, up = np.uint8((1 << bits) - 1), filled & 7
            i = 0
            while i < len(out):
                lane = (first + i) // rows
                begin = (first + i) - lane * rows
                some = packed[start + begin : start + min(rows, begin + len(out) - i)]
                to, down = byte[i : i + len(some)], (lane * bits) & 7  # up to 7, as the compiler sees: bytes are enough
                for j in range(len(some)):
                    to[j] |= ((some[j] >> down) & mask) << up
                i += len(some)
            start += rows
            filled += bits
        if shift == 0:
            for i in range(len(out)):
                out[i] = byte[i]
        else:
            for i in range(len(out)):
                out[i] |= np.int64(byte[i]) << shift
        shift += 8


@compiled()
def gaps_of(positions: Integers, least: int, gaps: Integers, rests: Integers) -> None:
    """The gaps before positions, of which there are some, and the four sums of gaps >> least, least + 1, ..."""
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
    """Mark where the rests of the gaps end, as that many zeros and a one each, in an empty bitmap with room for all."""
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
def mark(positions: Integers, low: int, step: int, bitmap: Bytes) -> None:
    """Mark (position >> low) + i * step for the i-th position, in an empty bitmap with room for all."""
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
def counted(bitmap: Bytes, size: int, counts: Integers) -> None:
    """How many of the first `size` bits are set, lane by lane."""
    rows = len(bitmap)
    for lane in range(8):
        some = bitmap[: max(0, min(rows, size - lane * rows))]
        count = np.uint32(0)
        for j in range(len(some)):
            count += np.uint32((some[j] >> (lane & 7)) & np.uint8(1))
        counts[lane] = count


@compiled()
def marked(bitmap: Bytes, start: int, stop: int, out: Integers) -> None:
    """Which bits are set, of those from the start of a lane up to that of another or the end; there is room for all."""
    rows, count, room = len(bitmap), np.uint64(0), np.uint64(len(out))
    for base in range(start, stop, max(1, rows)):
        lane, down = bitmap[: min(rows, stop - base)], np.uint64(base // rows)
        for begin in range(0, len(lane), STRETCH):
            some, first = lane[begin : begin + STRETCH], base + begin
            if count + np.uint64(STRETCH) < room:
                for j in range(len(some)):  # whatever is not marked is overwritten by the next
                    out[count] = first + j
                    count += (np.uint64(some[j]) >> down) & np.uint64(1)
            else:
                for j in range(len(some)):
                    if (some[j] >> down) & np.uint64(1) and count < room:
                        out[count] = first + j
                        count += np.uint64(1)


@compiled()
def join_gaps(ones: Integers, first: int, lows: Bytes, count: int, low: int) -> int:
    """Make positions of where the rests end and of the packed low bits, in place, from the first of `count` on.

    They are short of the low bits of all before the first. Returns the low bits of these, and their number.
    """
    scratch, byte = np.empty(STRETCH, np.int64), np.empty(STRETCH, np.uint8)
    so_far = -1
    for start in range(0, len(ones), STRETCH):
        some = ones[start : start + STRETCH]
        below = scratch[: len(some)]
        _some(lows, count, low, first + start, byte[: len(some)], below)
        for i in range(len(some)):
            so_far += below[i] + 1
            below[i] = so_far
        for i in range(len(some)):
            some[i] = ((some[i] - (first + start + i)) << low) + below[i]
    return so_far + 1


@compiled()
def join_positions(ones: Integers, first: int, lows: Bytes, count: int, low: int) -> bool:
    """Make positions of where the high parts are marked and of the packed low bits, in place, from the first of `count`
    on; whether they increase.
    """
    scratch, byte = np.empty(STRETCH, np.int64), np.empty(STRETCH, np.uint8)
    last, falls = np.int64(-1), 0
    for start in range(0, len(ones), STRETCH):
        some = ones[start : start + STRETCH]
        below = scratch[: len(some)]
        _some(lows, count, low, first + start, byte[: len(some)], below)
        for i in range(len(some)):
            some[i] = ((some[i] - (first + start + i)) << low) | below[i]
        falls += some[0] <= last
        last = some[len(some) - 1]
        before, after = some[: len(some) - 1], some[1:]
        for i in range(len(after)):
            falls += after[i] <= before[i]
    return falls == 0
