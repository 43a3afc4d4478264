"""Sums of squares, and the largest; the twins are in norms.py above."""

import numpy as np
from numpy.typing import NDArray

from ..layout import ABREAST, STRETCH
from .instructions import float_of
from .jit import compiled
from .quantization import NOT_FINITE, WITHOUT_SIGN

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@compiled()
def peaks(bits: NDArray[np.int32], block: int, start: int, stop: int, out: NDArray[np.float32]) -> None:
    """The largest size in each of the stretches from one to another; NaN if there is one. Numbers are their bits."""
    in_block = out.shape[1]
    for k in range(start, stop):
        row, column = k // in_block, k % in_block
        first = row * block + column * STRETCH
        some = bits[first : min(first + STRETCH, (row + 1) * block, len(bits))]
        most = np.int32(0)
        for i in range(len(some)):  # without the sign, bits are ordered as sizes are, and NaN is the largest
            most = max(most, np.int32(some[i] & WITHOUT_SIGN))
        out[row, column] = np.float32(np.nan) if most > NOT_FINITE else float_of(most)


@compiled()
def squares(x: Floats, block: int, start: int, stop: int, out: Doubles) -> None:
    """Of the stretches from one to another, of which every block has as many: in 64 bits, so many sums abreast."""
    in_block, sums = out.shape[1], np.empty(ABREAST, np.float64)
    for k in range(start, stop):
        row, column = k // in_block, k % in_block
        first = row * block + column * STRETCH
        some = x[first : min(first + STRETCH, (row + 1) * block, len(x))]
        sums[:] = 0
        whole = len(some) - len(some) % ABREAST
        for i in range(0, whole, ABREAST):
            abreast = some[i : i + ABREAST]
            for j in range(ABREAST):
                sums[j] += np.float64(abreast[j]) * np.float64(abreast[j])
        for j in range(len(some) - whole):
            sums[j] += np.float64(some[whole + j]) * np.float64(some[whole + j])
        width = ABREAST
        while width > 1:
            width //= 2
            for j in range(width):
                sums[j] += sums[j + width]
        out[row, column] = sums[0]
