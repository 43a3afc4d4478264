"""AdaComp's selection; the twin is in kernels/bins.py. A size is the bits of a float without its sign."""

import numpy as np
from numpy.typing import NDArray

from ..layout import WORD
from .instructions import bits_of
from .jit import compiled, inlined
from .selection_vectors import add_and_largest32, add_and_largest64, reaching32, reaching64
from .set_bits import append_set_bits

Floats = NDArray[np.float32]
Sizes = NDArray[np.int32]
Positions = NDArray[np.int64]

WITHOUT_SIGN = np.int32(0x7FFFFFFF)
UNSIGNED = 16  # positions whose signs are looked up together, while their entries are still in the cache


@inlined
def _sign(total: Floats, first: int, selected: Positions, signed: int, count: int) -> int:
    """Append the sign of the total as the lowest bit to the positions from `signed` on; drop those of zeros."""
    for i in range(signed, count):
        j = np.uint64(selected[np.uint64(i)])
        bits = np.uint32(bits_of(total[j]))
        selected[np.uint64(signed)] = (first + np.int64(j)) << 1 | np.int64(bits >> np.uint32(31))
        signed += (bits << np.uint32(1)) != 0
    return signed


@compiled()
def add_and_select(
    x: Floats, rest: Floats, out: Floats, bin_size: int, more: np.float32, first: int, sizes: Sizes, selected: Positions
) -> int:
    """out = x + rest; writes the largest size of each bin, and the positions where out + more * x reaches it.

    Returns the number of positions, or -1 if there was no room for the positions of one word. In a bin whose length is
    no multiple of 64 (or 32), the last 64 (or 32) entries overlap those before: a second computation gives the same.
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
            continue  # from a bin of zeros nothing is sent, although every entry reaches the largest
        if count - signed >= UNSIGNED:
            count = signed = _sign(out, first, selected, signed, count)
        i = start
        if stop - start >= 64:
            last = stop - 64
            while i < last:
                if count + WORD > len(selected):
                    return -1
                count = append_set_bits(reaching64(out, x, more, i, most), i, selected, count)
                i += 64
            if count + WORD > len(selected):
                return -1
            hits = reaching64(out, x, more, last, most) >> np.uint64(i - last)
            count = append_set_bits(hits, i, selected, count)
        elif count + WORD > len(selected):
            return -1
        elif stop - start >= 32:
            hits = reaching32(out, x, more, start, most)
            hits |= reaching32(out, x, more, stop - 32, most) << np.uint64(stop - 32 - start)
            count = append_set_bits(hits, start, selected, count)
        else:
            for j in range(start, stop):
                reach = np.float32(out[j] + np.float32(more * x[j]))
                if np.int32(bits_of(reach) & WITHOUT_SIGN) >= most:
                    selected[count] = j
                    count += 1
    return _sign(out, first, selected, signed, count)


@compiled()
def signed_values(selected: Positions, size: np.float32, where: Positions, values: Floats) -> None:
    """Split what `add_and_select` wrote into positions and values: the sign times one magnitude."""
    for i in range(len(selected)):
        where[i] = selected[i] >> 1
        values[i] = -size if selected[i] & 1 else size
