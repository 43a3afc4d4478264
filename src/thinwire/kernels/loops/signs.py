"""Signs, and the sums of magnitudes that go with them; the twins are in signs.py above.

A lane is a stretch of all entries that has one place in every byte, or one pair of bits. It is gone along as far as its
bytes stay in the cache: to change lanes more often takes longer, as the processor fetches ahead best along one line.

Sums are taken in an order that depends on the size alone: of each lane, pieces of 2048 entries, each of them by
adding quarters and then halves to each other until one number is left. Four neighbours are added in 32 bits, the rest
in 64; and where four are too large for that, all are added in 64.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled
from .sign_vectors import add_fours, add_fours_and_signs, add_fours_and_thirds

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bytes = NDArray[np.uint8]

RUN = 2**19  # bytes of a lane
PIECE, STEP = 2048, 128  # entries


@compiled()
def _beyond(x: np.float32, least: np.float32) -> np.float32:
    """The magnitude, or zero up to a least one; NaN stays."""
    size = abs(x)
    return np.float32(0) if size <= least else size


@compiled()
def _sum_of_fours(fours: Floats, sums: Doubles) -> np.float64:
    p, q, r, s = fours[:128], fours[128:256], fours[256:384], fours[384:]
    for j in range(128):
        sums[j] = (np.float64(p[j]) + np.float64(q[j])) + (np.float64(r[j]) + np.float64(s[j]))
    t, u, v, w = sums[:32], sums[32:64], sums[64:96], sums[96:128]
    for j in range(32):
        t[j] = (t[j] + u[j]) + (v[j] + w[j])
    for j in range(16):
        t[j] += t[j + 16]
    for j in range(8):
        t[j] += t[j + 8]
    return np.float64(((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7])))


@compiled()
def _sum(x: Floats, least: np.float32, fours: Floats, sums: Doubles) -> np.float64:
    """The sum of a piece's magnitudes beyond the least, of which four neighbours each are added already."""
    total = _sum_of_fours(fours, sums)
    if total < np.inf:
        return total
    for j in range(PIECE):
        sums[j] = np.float64(_beyond(x[j], least)) if j < len(x) else 0.0
    width = PIECE // 2
    while width:
        for j in range(width):
            sums[j] += sums[j + width]
        width //= 2
    return np.float64(sums[0])


@compiled()
def _piece(x: Floats, lane: int, rows: int, begin: int) -> Floats:
    """The entries of a piece of a lane; the last may be short, or none."""
    first = min(lane * rows + begin, len(x))
    return x[first : min(lane * rows + min(begin + PIECE, rows), len(x))]


@compiled()
def _padded(x: Floats, out: Floats) -> Floats:
    """As many entries as a whole number of steps takes, with zeros behind the last."""
    whole = out[: -(-len(x) // STEP) * STEP]
    whole[: len(x)] = x
    whole[len(x) :] = 0
    return whole


@compiled()
def magnitudes(x: Floats, rows: int, start: int, stop: int, sizes: Doubles) -> None:
    """The sums of the pieces from one row to another of every lane."""
    room, fours, sums = np.empty(PIECE, np.float32), np.empty(PIECE // 4, np.float32), np.empty(PIECE, np.float64)
    for lane in range(len(sizes)):
        for begin in range(start, stop, PIECE):
            some = _piece(x, lane, rows, begin)
            whole = some
            if len(some) < PIECE:
                whole = _padded(some, room)
                fours[:] = 0
            for i in range(0, len(whole), STEP):
                add_fours(whole, i, fours, i // 4)
            sizes[lane, begin // PIECE] = _sum(some, np.float32(-1), fours, sums)


@compiled()
def signs(x: Floats, start: int, stop: int, sizes: Doubles, out: Bytes) -> None:
    """The bytes from one to another, with a bit for every negative entry, and the sums of the pieces in them."""
    room, fours, sums = np.empty(PIECE, np.float32), np.empty(PIECE // 4, np.float32), np.empty(PIECE, np.float64)
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
                        add_fours_and_signs(some, i, fours, i // 4, one, to)
                else:
                    whole = _padded(some, room)
                    codes[:], fours[:] = 0, 0
                    for i in range(0, len(whole), STEP):
                        add_fours_and_signs(whole, i, fours, i // 4, one, codes)
                    for i in range(len(some)):
                        out[begin + i] |= codes[i]
                sizes[lane, begin // PIECE] = _sum(some, np.float32(-1), fours, sums)


@compiled()
def thirds(
    x: Floats, least: np.float32, start: int, stop: int, sizes: Doubles, counts: NDArray[np.int64], out: Bytes
) -> None:
    """The bytes from one to another, with two bits for every entry: 0 and 2 for those beyond the least size, 1 for the
    others; and the sums of the pieces in them and how many entries, as far as they are beyond it.
    """
    room, fours, sums = np.empty(PIECE, np.float32), np.empty(PIECE // 4, np.float32), np.empty(PIECE, np.float64)
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
                        count += add_fours_and_thirds(some, i, fours, i // 4, least, one, to)
                else:
                    whole = _padded(some, room)
                    codes[:], fours[:] = 0, 0
                    for i in range(0, len(whole), STEP):
                        count += add_fours_and_thirds(whole, i, fours, i // 4, least, one, codes)
                    for i in range(len(some)):
                        out[begin + i] |= codes[i]
                sizes[lane, begin // PIECE] = _sum(some, least, fours, sums)
                counts[lane, begin // PIECE] = count
