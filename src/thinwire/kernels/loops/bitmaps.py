"""The set bits of bitmaps; the twins are in kernels/bitmaps.py. Lanes are described in bits.py."""

import numpy as np

from .bits import Bytes, Integers
from .jit import compiled

STRETCH = 1024  # bytes of a lane that are processed together


@compiled()
def count_bits(bitmap: Bytes, size: int, counts: Integers) -> None:
    """The number of set bits in each lane, of the first `size` bits."""
    rows = len(bitmap)
    for lane in range(8):
        some = bitmap[: max(0, min(rows, size - lane * rows))]
        count = np.uint32(0)
        for j in range(len(some)):
            count += np.uint32((some[j] >> (lane & 7)) & np.uint8(1))
        counts[lane] = count


@compiled()
def set_positions(bitmap: Bytes, start: int, stop: int, out: Integers) -> None:
    """The positions of set bits from the start of one lane to that of another or the end; `out` has room for all."""
    rows, count, room = len(bitmap), np.uint64(0), np.uint64(len(out))
    for base in range(start, stop, max(1, rows)):
        lane, down = bitmap[: min(rows, stop - base)], np.uint64(base // rows)
        for begin in range(0, len(lane), STRETCH):
            some, first = lane[begin : begin + STRETCH], base + begin
            if count + np.uint64(STRETCH) < room:
                for j in range(len(some)):  # the position of a bit that is not set is overwritten by the next
                    out[count] = first + j
                    count += (np.uint64(some[j]) >> down) & np.uint64(1)
            else:
                for j in range(len(some)):
                    if (some[j] >> down) & np.uint64(1) and count < room:
                        out[count] = first + j
                        count += np.uint64(1)
