"""What AdaComp selects from bins; the twin is in bins.py above. A size is the bits of a float without its sign."""

import numpy as np
from numpy.typing import NDArray

from ..layout import WORD
from .instructions import bits_of
from .jit import compiled, inlined
from .selection_vectors import add_and_largest32, add_and_largest64, reaching32, reaching64
from .set_bits import note

Floats = NDArray[np.float32]
Sizes = NDArray[np.int32]
Positions = NDArray[np.int64]

WITHOUT_SIGN = np.int32(0x7FFFFFFF)
UNSIGNED = 16  # places that are signed at once, while what is there is still in the cache


@inlined
def _sign(total: Floats, first: int, noted: Positions, signed: int, count: int) -> int:
    """Give the places from `signed` on a lowest bit, for whether the total is negative there; drop those of zeros."""
    for i in range(signed, count):
        j = np.uint64(noted[np.uint64(i)])
        bits = np.uint32(bits_of(total[j]))
        noted[np.uint64(signed)] = (first + np.int64(j)) << 1 | np.int64(bits >> np.uint32(31))
        signed += (bits << np.uint32(1)) != 0
    return signed


@compiled()
def add_and_reach(
    x: Floats, rest: Floats, out: Floats, bin_size: int, more: np.float32, first: int, sizes: Sizes, noted: Positions
) -> int:
    """out = x + rest; notes the largest size in each bin, by its bits, and where out + more * x is as large as that.

    Returns how many were noted, or -1 if there was no room for a word's. A bin that
    no whole number of 64 (or 32) entries fills ends with 64 (or 32) that overlap: whatever is computed twice comes out
    the same.
    """
    count = signed = 0
    for b in range(len(sizes)):
        start, stop = b * bin_size, min((b + 1) * bin_size, len(x))
        most = np.int32(0)
        i = start
        if stop - start >= 64:
            last = stop - 64
            while i < last:
                most = max(most, add_and_largest64(x, rest, out, i))
                i += 64
            most = max(most, add_and_largest64(x, rest, out, last))
        elif stop - start >= 32:
            most = max(add_and_largest32(x, rest, out, start), add_and_largest32(x, rest, out, stop - 32))
        else:
            for j in range(start, stop):
                out[j] = x[j] + rest[j]
                most = max(most, np.int32(bits_of(out[j]) & WITHOUT_SIGN))
        sizes[b] = most
        if most == 0:
            continue  # nothing is sent from bins of zeros, where everything is as large as the largest
        if count - signed >= UNSIGNED:
            count = signed = _sign(out, first, noted, signed, count)
        i = start
        if stop - start >= 64:
            last = stop - 64
            while i < last:
                if count + WORD > len(noted):
                    return -1
                count = note(reaching64(out, x, more, i, most), i, noted, count)
                i += 64
            if count + WORD > len(noted):
                return -1
            hits = reaching64(out, x, more, last, most) >> np.uint64(i - last)
            count = note(hits, i, noted, count)
        elif count + WORD > len(noted):
            return -1
        elif stop - start >= 32:
            hits = reaching32(out, x, more, start, most)
            hits |= reaching32(out, x, more, stop - 32, most) << np.uint64(stop - 32 - start)
            count = note(hits, start, noted, count)
        else:
            for j in range(start, stop):
                reach = np.float32(out[j] + np.float32(more * x[j]))
                if np.int32(bits_of(reach) & WITHOUT_SIGN) >= most:
                    noted[count] = j
                    count += 1
    return _sign(out, first, noted, signed, count)


@compiled()
def told(noted: Positions, size: np.float32, where: Positions, values: Floats) -> None:
    """What was noted, as places and signs times a size."""
    for i in range(len(noted)):
        where[i] = noted[i] >> 1
        values[i] = -size if noted[i] & 1 else size
