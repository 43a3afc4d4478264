"""Selection of the largest entries; the twins are in kernels/selection.py.

Sizes are integers: the bits of floats without the sign. Loops that take `first` work on a stretch of a longer vector,
which begins at that position.
"""

import numpy as np
from numpy.typing import NDArray

from ..layout import LOW_BITS, WORD
from .instructions import bits_of
from .jit import compiled, inlined
from .selection_vectors import add_and_filter64, add_nontemporal_and_filter64, filtered64, lowest
from .set_bits import append_set_bits

Floats = NDArray[np.float32]
Sizes = NDArray[np.int32]
Positions = NDArray[np.int64]

WITHOUT_SIGN = np.int32(0x7FFFFFFF)
ONE = np.uint64(1)
LOW = np.int32(2**LOW_BITS - 1)
UNKNOWN = 16  # positions whose entries are read together, while they are still in the cache
STRETCH = 2**16  # entries whose counts fit into 32 bits


@compiled()
def sample_sum(x: Floats, rest: Floats, decay: np.float32, out: Floats) -> None:
    """Sample entries of x + decay * rest: a pseudorandom one from each of len(out) equal stretches.

    Entries at equal distances would be a biased sample if values repeat at that distance.
    """
    stride = len(x) // len(out)
    for i in range(len(out)):
        h = np.uint32(i) * np.uint32(0x9E3779B9)
        h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x21F0AAAD))
        h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x735A2D97))
        j = i * stride + np.int64(h ^ (h >> np.uint32(15))) % stride
        out[i] = x[j] + decay * rest[j]


@inlined
def _add_up(
    x: Floats, rest: Floats, decay: np.float32, first: int, where: Positions, found: Sizes, known: int, count: int
) -> int:
    """For positions from `known` on: read the bits of the sum there, and make the position one of the longer vector."""
    for i in range(known, count):
        j = where[i]
        where[i], found[i] = first + j, bits_of(np.float32(x[j] + np.float32(decay * rest[j])))
    return count


@compiled()
def add_and_filter(
    x: Floats,
    rest: Floats,
    decay: np.float32,
    out: Floats,
    far: bool,
    least: np.int32,
    first: int,
    where: Positions,
    found: Sizes,
) -> int:
    """out = x + decay * rest; collects positions and bits of entries whose size is at least `least`.

    If `far`, `out` is much larger than the cache and aligned to 64 bytes, and is written with nontemporal stores.
    Returns the number of positions, or -1 if there was no room for those of one word.
    """
    count = known = 0
    room = True
    for i in range(0, len(x) - 63, 64):
        if far:
            hits = add_nontemporal_and_filter64(x, rest, decay, out, i, least)
        else:
            hits = add_and_filter64(x, rest, decay, out, i, least)
        room = count + WORD <= len(where)
        if room:
            count = append_set_bits(hits, i, where, count)
            if count - known >= UNKNOWN:
                known = _add_up(x, rest, decay, first, where, found, known, count)
    room = room and count + WORD <= len(where)
    for j in range(len(x) - len(x) % 64, len(x)):
        out[j] = x[j] + decay * rest[j]
        if np.int32(bits_of(out[j]) & WITHOUT_SIGN) >= least and room:
            where[count] = j
            count += 1
    return _add_up(x, rest, decay, first, where, found, known, count) if room else -1


@inlined
def _look_up(x: Floats, first: int, where: Positions, found: Sizes, known: int, count: int) -> int:
    """As `_add_up`, for a vector instead of a sum."""
    for i in range(known, count):
        j = where[i]
        where[i], found[i] = first + j, bits_of(x[j])
    return count


@compiled()
def filter_from(x: Floats, least: np.int32, first: int, where: Positions, found: Sizes) -> int:
    """As `add_and_filter`, for a vector instead of a sum."""
    count = known = 0
    for i in range(0, len(x), 64):
        if count + WORD > len(where):
            return -1
        if i + 64 <= len(x):
            count = append_set_bits(filtered64(x, i, least), i, where, count)
            if count - known >= UNKNOWN:
                known = _look_up(x, first, where, found, known, count)
        else:
            for j in range(i, len(x)):
                if np.int32(bits_of(x[j]) & WITHOUT_SIGN) >= least:
                    where[count] = j
                    count += 1
    return _look_up(x, first, where, found, known, count)


@compiled()
def keep_selected(where: Positions, found: Sizes, least: np.int32, equal: int, out: Positions, values: Sizes) -> None:
    """Of the candidates, keep those larger than `least`, and the first `equal` that are just as large."""
    count = 0
    for i in range(len(where)):
        if count == len(out):
            return
        size = np.int32(found[i] & WITHOUT_SIGN)
        if size > least or (size == least and equal > 0):
            out[count], values[count] = where[i], found[i]
            count += 1
            if size == least:
                equal -= 1


@compiled()
def keep(x: Floats, bits: Sizes, least: np.int32, equal: int, out: Positions) -> None:
    """The positions where x is larger than `least`, and the first `equal` where it is just as large."""
    count = 0
    bar = least if equal > 0 else np.int32(least + 1)
    for i in range(0, len(x), 64):
        hits = filtered64(x, i, bar) if i + 64 <= len(x) else (ONE << np.uint64(len(x) - i)) - ONE
        while hits:
            j = i + lowest(hits)
            hits &= hits - ONE
            size = np.int32(bits[j] & WITHOUT_SIGN)
            if size < bar:
                continue
            if count == len(out):
                return
            out[count] = j
            count += 1
            if size == least:
                equal -= 1
                if equal == 0:
                    bar = np.int32(least + 1)


@compiled()
def count_from(bits: Sizes, least: np.int32) -> tuple[np.int64, np.int64]:
    """The number of entries larger than `least`, and of those just as large."""
    larger = equal = np.int64(0)
    for start in range(0, len(bits), STRETCH):
        some = bits[start : start + STRETCH]
        above = same = np.int32(0)
        for i in range(len(some)):
            size = np.int32(some[i] & WITHOUT_SIGN)
            above += np.int32(size > least)
            same += np.int32(size == least)
        larger += above
        equal += same
    return larger, equal


@compiled()
def count_high(bits: Sizes, counts: NDArray[np.int64]) -> None:
    """Count entries by the high bits of their size, in four rows, which the caller adds.

    Consecutive entries use different rows, as incrementing a count that was just incremented stalls.
    """
    whole = len(bits) - len(bits) % 4
    for i in range(0, whole, 4):
        four = bits[i : i + 4]
        counts[0, np.int32(four[0] & WITHOUT_SIGN) >> LOW_BITS] += 1
        counts[1, np.int32(four[1] & WITHOUT_SIGN) >> LOW_BITS] += 1
        counts[2, np.int32(four[2] & WITHOUT_SIGN) >> LOW_BITS] += 1
        counts[3, np.int32(four[3] & WITHOUT_SIGN) >> LOW_BITS] += 1
    for i in range(whole, len(bits)):
        counts[0, np.int32(bits[i] & WITHOUT_SIGN) >> LOW_BITS] += 1


@compiled()
def count_low(bits: Sizes, high: int, counts: NDArray[np.int64]) -> None:
    """Count the entries with these high bits by their low bits, in four rows, which the caller adds."""
    whole = len(bits) - len(bits) % 4
    for i in range(0, whole, 4):
        four = bits[i : i + 4]
        for row in range(4):
            size = np.int32(four[row] & WITHOUT_SIGN)
            if size >> LOW_BITS == high:
                counts[row, size & LOW] += 1
    for i in range(whole, len(bits)):
        size = np.int32(bits[i] & WITHOUT_SIGN)
        if size >> LOW_BITS == high:
            counts[0, size & LOW] += 1
