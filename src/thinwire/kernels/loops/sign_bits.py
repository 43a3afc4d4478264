"""Signs, and the sums of magnitudes that go with them; the twins are in signs.py above.

A lane is a stretch of all entries that has one place in every byte, or one pair of bits. It is gone along as far as its
bytes stay in the cache: to change lanes more often takes longer, as the processor fetches ahead best along one line.

Sums are taken in an order that depends on the size alone: of each lane, pieces of 2048 entries, and of each piece, 32
sums abreast. Of 128 entries, four each (those 32 apart) are added in 32 bits, and then to their sum in 64. Where four
are too large for that, all are added in 64, one after the other. Then one half of the 32 is added to the other until
one number is left.
"""

import numpy as np
from numpy.typing import NDArray

from ..layout import ABREAST, PIECE
from .jit import compiled
from .sign_vectors import add_sizes, add_sizes_and_signs, add_sizes_and_thirds, total

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bytes = NDArray[np.uint8]

RUN = 2**19  # bytes of a lane
STEP = 128  # entries


@compiled()
def _sum(x: Floats, least: np.float32, sums: Doubles) -> np.float64:
    """The sum of a piece's magnitudes beyond the least, if it is not told by the sums of fours; which are set to 0."""
    whole = total(sums)
    if not whole < np.inf:
        for j in range(ABREAST):
            sums[j] = 0
        for j in range(len(x)):
            if not abs(x[j]) <= least:
                sums[j % ABREAST] += np.float64(abs(x[j]))
        whole = total(sums)
    for j in range(ABREAST):
        sums[j] = 0
    return np.float64(whole)


@compiled()
def _piece(x: Floats, lane: int, rows: int, begin: int) -> Floats:
    """The entries of a piece of a lane; the last may be short, or none."""
    first = min(lane * rows + begin, len(x))
    return x[first : min(lane * rows + min(begin + PIECE, rows), len(x))]


@compiled()
def _padded(x: Floats, out: Floats) -> Floats:
    """As many entries as a whole number of steps takes, with zeros behind the last."""
    whole = out[: -(-len(x) // STEP) * STEP]
    for j in range(len(whole)):
        whole[j] = x[j] if j < len(x) else np.float32(0)
    return whole


@compiled()
def magnitudes(x: Floats, rows: int, start: int, stop: int, sizes: Doubles) -> None:
    """The sums of the pieces from one row to another of every lane."""
    room, sums = np.empty(PIECE, np.float32), np.zeros(ABREAST, np.float64)
    for lane in range(len(sizes)):
        for begin in range(start, stop, PIECE):
            some = _piece(x, lane, rows, begin)
            whole = some if len(some) == PIECE else _padded(some, room)
            for i in range(0, len(whole), STEP):
                add_sizes(whole, i, sums)
            sizes[lane, begin // PIECE] = _sum(some, np.float32(-1), sums)


@compiled()
def signs(x: Floats, start: int, stop: int, sizes: Doubles, out: Bytes) -> None:
    """The bytes from one to another, with a bit for every negative entry, and the sums of the pieces in them."""
    room, sums = np.empty(PIECE, np.float32), np.zeros(ABREAST, np.float64)
    rows, codes = len(out), np.empty(PIECE, np.uint8)
    for run in range(start, stop, RUN):
        out[run : min(run + RUN, stop)] = 0
        for lane in range(8):
            one = np.uint8(1 << lane)
            for begin in range(run, min(run + RUN, stop), PIECE):
                some = _piece(x, lane, rows, begin)
                if len(some) == PIECE:
                    to = out[begin : begin + PIECE]
                    for i in range(0, PIECE, STEP):
                        add_sizes_and_signs(some, i, sums, one, to)
                else:
                    whole = _padded(some, room)
                    codes[:] = 0
                    for i in range(0, len(whole), STEP):
                        add_sizes_and_signs(whole, i, sums, one, codes)
                    for i in range(len(some)):
                        out[begin + i] |= codes[i]
                sizes[lane, begin // PIECE] = _sum(some, np.float32(-1), sums)


@compiled()
def thirds(
    x: Floats, least: np.float32, start: int, stop: int, sizes: Doubles, counts: NDArray[np.int64], out: Bytes
) -> None:
    """The bytes from one to another, with two bits for every entry: 0 and 2 for those beyond the least size, 1 for the
    others; and the sums of the pieces in them and how many entries, as far as they are beyond it.
    """
    room, sums = np.empty(PIECE, np.float32), np.zeros(ABREAST, np.float64)
    rows, codes = len(out), np.empty(PIECE, np.uint8)
    for run in range(start, stop, RUN):
        out[run : min(run + RUN, stop)] = 0
        for lane in range(4):
            one = np.uint8(1 << (2 * lane))
            for begin in range(run, min(run + RUN, stop), PIECE):
                some, count = _piece(x, lane, rows, begin), 0
                if len(some) == PIECE:
                    to = out[begin : begin + PIECE]
                    for i in range(0, PIECE, STEP):
                        count += add_sizes_and_thirds(some, i, sums, least, one, to)
                else:
                    whole = _padded(some, room)
                    codes[:] = 0
                    for i in range(0, len(whole), STEP):
                        count += add_sizes_and_thirds(whole, i, sums, least, one, codes)
                    for i in range(len(some)):
                        out[begin + i] |= codes[i]
                sizes[lane, begin // PIECE] = _sum(some, least, sums)
                counts[lane, begin // PIECE] = count
