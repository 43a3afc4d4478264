"""What AdaComp selects from bins; the twin is in bins.py above. A size is the bits of a float without its sign."""

import numpy as np
from numpy.typing import NDArray

from .instructions import bits_of
from .jit import compiled
from .selection_vectors import (
    add_and_largest32,
    add_and_largest64,
    lowest,
    reaching32,
    reaching64,
)

Floats = NDArray[np.float32]
Sizes = NDArray[np.int32]
Places = NDArray[np.int64]

WITHOUT_SIGN = np.int32(0x7FFFFFFF)
ONE = np.uint64(1)


@compiled()
def _note(total: Floats, j: int, first: int, noted: Places, count: int) -> int:
    """Note a place and, in its lowest bit, whether the total is negative there; nothing where it is zero."""
    if total[j] == 0:
        return count
    if count < len(noted):
        noted[count] = (first + j) << 1 | (total[j] < 0)
    return count + 1


@compiled()
def add_and_reach(
    x: Floats, rest: Floats, out: Floats, bin_size: int, more: np.float32, first: int, sizes: Sizes, noted: Places
) -> int:
    """out = x + rest; notes the largest size in each bin, by its bits, and where out + more * x is as large as that.

    Returns how many there are; those that there is no room for are not noted. A bin that no whole number of 64 (or 32)
    entries fills ends with 64 (or 32) that overlap: whatever is computed twice comes out the same.
    """
    count = 0
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
        i = start
        if stop - start >= 64:
            last = stop - 64
            while True:
                over = max(0, i - last)
                hits = reaching64(out, x, more, i - over, most) >> np.uint64(over)
                while hits:
                    count = _note(out, i + lowest(hits), first, noted, count)
                    hits &= hits - ONE
                if i >= last:
                    break
                i += 64
        elif stop - start >= 32:
            hits = reaching32(out, x, more, start, most)
            hits |= reaching32(out, x, more, stop - 32, most) << np.uint64(stop - 32 - start)
            while hits:
                count = _note(out, start + lowest(hits), first, noted, count)
                hits &= hits - ONE
        else:
            for j in range(start, stop):
                reach = np.float32(out[j] + np.float32(more * x[j]))
                if np.int32(bits_of(reach) & WITHOUT_SIGN) >= most:
                    count = _note(out, j, first, noted, count)
    return count


@compiled()
def told(noted: Places, size: np.float32, where: Places, values: Floats) -> None:
    """What was noted, as places and signs times a size."""
    for i in range(len(noted)):
        where[i] = noted[i] >> 1
        values[i] = -size if noted[i] & 1 else size
