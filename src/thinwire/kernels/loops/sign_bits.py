"""Signs, and sums of magnitudes; the twins are in kernels/sign_bits.py.

A lane is a stretch of entries whose codes have the same bits (one or two) in consecutive bytes. Loops run along a lane
for as long as its bytes stay in the cache: changing lanes more often is slower, as prefetching works along one lane.

The order of summation depends on the size alone: each lane is summed in pieces of 2048 entries, and each piece in 32
parallel sums. Of 128 entries, groups of four (32 apart) are added in 32 bits, and then to their sum in 64. If four are
too large for that, all are added in 64 bits, one after the other. Then one half of the 32 sums is added to the other
until one number is left.
"""

import numpy as np
from numpy.typing import NDArray

from ..layout import ABREAST, PIECE
from .jit import compiled
from .sign_vectors import add_sizes, add_sizes_and_signs, add_sizes_and_ternary, total

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bytes = NDArray[np.uint8]

RUN = 2**19  # bytes of a lane
STEP = 128  # entries per vector instruction group


@compiled()
def _sum(x: Floats, least: np.float32, sums: Doubles) -> np.float64:
    """The sum of a piece's magnitudes above `least`: from `sums` unless these overflowed. Clears `sums`."""
    result = total(sums)
    if not result < np.inf:
        for j in range(ABREAST):
            sums[j] = 0
        for j in range(len(x)):
            if not abs(x[j]) <= least:
                sums[j % ABREAST] += np.float64(abs(x[j]))
        result = total(sums)
    for j in range(ABREAST):
        sums[j] = 0
    return np.float64(result)


@compiled()
def _piece(x: Floats, lane: int, rows: int, begin: int) -> Floats:
    """The entries of a piece of a lane; the last may be shorter or empty."""
    first = min(lane * rows + begin, len(x))
    return x[first : min(lane * rows + min(begin + PIECE, rows), len(x))]


@compiled()
def _padded(x: Floats, out: Floats) -> Floats:
    """The entries, padded with zeros to a multiple of STEP."""
    padded = out[: -(-len(x) // STEP) * STEP]
    for j in range(len(padded)):
        padded[j] = x[j] if j < len(x) else np.float32(0)
    return padded


@compiled()
def magnitudes(x: Floats, rows: int, start: int, stop: int, sizes: Doubles) -> None:
    """The sums of the pieces of every lane, from byte `start` to `stop`."""
    room, sums = np.empty(PIECE, np.float32), np.zeros(ABREAST, np.float64)
    for lane in range(len(sizes)):
        for begin in range(start, stop, PIECE):
            some = _piece(x, lane, rows, begin)
            padded = some if len(some) == PIECE else _padded(some, room)
            for i in range(0, len(padded), STEP):
                add_sizes(padded, i, sums)
            sizes[lane, begin // PIECE] = _sum(some, np.float32(-1), sums)


@compiled()
def signs(x: Floats, start: int, stop: int, sizes: Doubles, out: Bytes) -> None:
    """The bytes from `start` to `stop`, with a bit set for every negative entry, and the sums of their pieces."""
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
                    padded = _padded(some, room)
                    codes[:] = 0
                    for i in range(0, len(padded), STEP):
                        add_sizes_and_signs(padded, i, sums, one, codes)
                    for i in range(len(some)):
                        out[begin + i] |= codes[i]
                sizes[lane, begin // PIECE] = _sum(some, np.float32(-1), sums)


@compiled()
def ternary(
    x: Floats, least: np.float32, start: int, stop: int, sizes: Doubles, counts: NDArray[np.int64], out: Bytes
) -> None:
    """The bytes from `start` to `stop`, with two bits per entry: 0 below -least, 2 above `least`, 1 between; and the
    sums and the numbers of the entries larger than `least` in size, for each of their pieces.
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
                        count += add_sizes_and_ternary(some, i, sums, least, one, to)
                else:
                    padded = _padded(some, room)
                    codes[:] = 0
                    for i in range(0, len(padded), STEP):
                        count += add_sizes_and_ternary(padded, i, sums, least, one, codes)
                    for i in range(len(some)):
                        out[begin + i] |= codes[i]
                sizes[lane, begin // PIECE] = _sum(some, least, sums)
                counts[lane, begin // PIECE] = count
