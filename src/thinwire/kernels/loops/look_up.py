"""Rounding to a table of numbers, and back; the twins are in kernels/look_up.py."""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Bytes = NDArray[np.uint8]
Sizes = NDArray[np.int32]

WITHOUT_SIGN = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)


@compiled()
def ranked(bits: Sizes, table: Bytes, shift: int, middle: int, strange: int, out: Bytes) -> None:
    """The rank of each float, looked up by its bits, subtracted from or added to the middle by its sign."""
    for i in range(len(out)):
        size = np.int32(bits[i] & WITHOUT_SIGN)
        if size >= INFINITE:
            out[i] = strange
        else:
            rank = np.int32(table[np.uint32(size) >> np.uint32(shift)])
            out[i] = middle - rank if bits[i] < 0 else middle + rank


@compiled()
def looked_up(codes: Bytes, table: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for i in range(len(out)):
        out[i] = table[codes[i]]
