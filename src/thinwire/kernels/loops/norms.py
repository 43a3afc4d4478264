"""Sums of squares, and largest magnitudes; the twins are in kernels/norms.py."""

import numpy as np
from numpy.typing import NDArray

from ..layout import ABREAST, STRETCH
from .instructions import float_of
from .jit import compiled
from .quantization import NOT_FINITE, WITHOUT_SIGN

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@compiled()
def largest(bits: NDArray[np.int32], block: int, start: int, stop: int, out: NDArray[np.float32]) -> None:
    """The largest magnitude of each stretch from `start` to `stop`, from the bits of entries; NaN if an entry is."""
    in_block = out.shape[1]
    for k in range(start, stop):
        row, column = k // in_block, k % in_block
        first = row * block + column * STRETCH
        some = bits[first : min(first + STRETCH, (row + 1) * block, len(bits))]
        most = np.int32(0)
        for i in range(len(some)):  # without the sign, bits are ordered as magnitudes are, and NaN is the largest
            most = max(most, np.int32(some[i] & WITHOUT_SIGN))
        out[row, column] = np.float32(np.nan) if most > NOT_FINITE else float_of(most)


@compiled()
def squares(x: Floats, block: int, start: int, stop: int, out: Doubles) -> None:
    """The sum of squares of each stretch from `start` to `stop`, in ABREAST parallel sums of 64 bits."""
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
