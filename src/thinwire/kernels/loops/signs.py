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

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bytes = NDArray[np.uint8]

RUN = 2**19  # bytes of a lane
PIECE = 2048


@compiled()
def _beyond(x: np.float32, least: np.float32) -> np.float32:
    """The magnitude, or zero up to a least one; NaN stays."""
    size = abs(x)
    return np.float32(0) if size <= least else size


@compiled()
def _folded(sums: Doubles) -> np.float64:
    width = len(sums) // 2
    while width:
        for j in range(width):
            sums[j] += sums[j + width]
        width //= 2
    return np.float64(sums[0])


@compiled()
def _fours(x: Floats, out: Floats) -> None:
    for i in range(PIECE // 128):
        p, q, r, s, to = x[128 * i :], x[128 * i + 32 :], x[128 * i + 64 :], x[128 * i + 96 :], out[32 * i :]
        for j in range(32):
            to[j] = (abs(p[j]) + abs(q[j])) + (abs(r[j]) + abs(s[j]))


@compiled()
def _fours_beyond(x: Floats, least: np.float32, out: Floats) -> None:
    for i in range(PIECE // 128):
        p, q, r, s, to = x[128 * i :], x[128 * i + 32 :], x[128 * i + 64 :], x[128 * i + 96 :], out[32 * i :]
        for j in range(32):
            to[j] = (_beyond(p[j], least) + _beyond(q[j], least)) + (_beyond(r[j], least) + _beyond(s[j], least))


@compiled()
def _sum_of_fours(fours: Floats, sums: Doubles) -> np.float64:
    p, q, r, s = fours[:128], fours[128:256], fours[256:384], fours[384:]
    for j in range(128):
        sums[j] = (np.float64(p[j]) + np.float64(q[j])) + (np.float64(r[j]) + np.float64(s[j]))
    t, u, v, w = sums[:32], sums[32:64], sums[64:96], sums[96:128]
    for j in range(32):
        t[j] = (t[j] + u[j]) + (v[j] + w[j])
    return _folded(t)


@compiled()
def _sum(x: Floats, least: np.float32, fours: Floats, sums: Doubles) -> np.float64:
    """The sum of a piece's magnitudes beyond the least."""
    if least < 0:
        _fours(x, fours)
    else:
        _fours_beyond(x, least, fours)
    total = _sum_of_fours(fours, sums)
    if total < np.inf:
        return total
    for j in range(PIECE):
        sums[j] = np.float64(_beyond(x[j], least))
    return _folded(sums)


@compiled()
def _sum_of_some(x: Floats, least: np.float32, padded: Floats, fours: Floats, sums: Doubles) -> np.float64:
    """The sum of a piece that may be short."""
    if len(x) == PIECE:
        return _sum(x, least, fours, sums)
    padded[: len(x)] = x
    padded[len(x) :] = 0
    return _sum(padded, least, fours, sums)


@compiled()
def _add_negative(x: Floats, one: np.uint8, to: Bytes) -> None:
    for j in range(len(x)):
        to[j] |= np.uint8(np.int32(np.int32(one) if x[j] < np.float32(0) else np.int32(0)))


@compiled()
def _add_thirds(x: Floats, least: np.float32, one: np.uint8, to: Bytes) -> np.int32:
    middle, upper, count = np.int32(one), np.int32(2 * one), np.int32(0)
    for j in range(len(x)):
        code = np.int32(middle if x[j] >= -least else np.int32(0))
        code = np.int32(upper if x[j] > least else code)
        count = np.int32(count + np.int32(code != middle))
        to[j] |= np.uint8(code)
    return count


@compiled()
def magnitudes(x: Floats, rows: int, start: int, stop: int, sizes: Doubles) -> None:
    """The sums of the pieces from one row to another of every lane."""
    padded, fours, sums = np.empty(PIECE, np.float32), np.empty(PIECE // 4, np.float32), np.empty(PIECE, np.float64)
    for lane in range(len(sizes)):
        for begin in range(start, stop, PIECE):
            first = min(lane * rows + begin, len(x))
            some = x[first : min(lane * rows + min(begin + PIECE, rows), len(x))]
            sizes[lane, begin // PIECE] = _sum_of_some(some, np.float32(-1), padded, fours, sums)


@compiled()
def signs(x: Floats, start: int, stop: int, sizes: Doubles, out: Bytes) -> None:
    """The bytes from one to another, with a bit for every negative entry, and the sums of the pieces in them."""
    padded, fours, sums = np.empty(PIECE, np.float32), np.empty(PIECE // 4, np.float32), np.empty(PIECE, np.float64)
    rows = len(out)
    for run in range(start, stop, RUN):
        out[run : min(run + RUN, stop)] = 0
        for lane in range(8):
            for begin in range(run, min(run + RUN, stop), PIECE):
                first = min(lane * rows + begin, len(x))
                some = x[first : min(lane * rows + min(begin + PIECE, rows), len(x))]
                sizes[lane, begin // PIECE] = _sum_of_some(some, np.float32(-1), padded, fours, sums)
                _add_negative(some, np.uint8(1 << lane), out[begin : begin + len(some)])


@compiled()
def thirds(
    x: Floats, least: np.float32, start: int, stop: int, sizes: Doubles, counts: NDArray[np.int64], out: Bytes
) -> None:
    """The bytes from one to another, with two bits for every entry: 0 and 2 for those beyond the least size, 1 for the
    others; and the sums of the pieces in them and how many entries, as far as they are beyond it.
    """
    padded, fours, sums = np.empty(PIECE, np.float32), np.empty(PIECE // 4, np.float32), np.empty(PIECE, np.float64)
    rows = len(out)
    for run in range(start, stop, RUN):
        out[run : min(run + RUN, stop)] = 0
        for lane in range(4):
            for begin in range(run, min(run + RUN, stop), PIECE):
                first = min(lane * rows + begin, len(x))
                some = x[first : min(lane * rows + min(begin + PIECE, rows), len(x))]
                sizes[lane, begin // PIECE] = _sum_of_some(some, least, padded, fours, sums)
                counts[lane, begin // PIECE] = _add_thirds(
                    some, least, np.uint8(1 << (2 * lane)), out[begin : begin + len(some)]
                )
