"""Quantization with a scale per block; the twins are in kernels/quantization.py.

Codes lie in lanes: of m bytes, byte j holds the entries j, j + m, ... . A loop fills a range of bytes, lane after lane,
so that threads can fill different ranges. numba widens every sum of small integers to 64 bits, of which vectors hold
few: so intermediate results are narrowed again at every step.
"""

import numpy as np
from numpy.typing import NDArray

from ..layout import NEAREST, STOCHASTIC, TO_NEAREST_POWER, TO_POWERS
from .instructions import bits_of, float_of
from .jit import compiled

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Integers = NDArray[np.int32]

RUN = 2**19  # bytes of a lane that stay in the cache while the other lanes are added
SHORT = 2048  # entries that are quantized before they are packed
TINY = np.finfo(np.float32).tiny
NOT_FINITE = np.int32(0x7F800000)  # the bits of infinity, above which are those of NaN
WITHOUT_SIGN = np.int32(0x7FFFFFFF)


@compiled()
def _scale(bits: Integers, levels: int) -> np.float32:
    """The largest magnitude divided by the levels, from the bits of entries; NaN if an entry is NaN."""
    most = np.int32(0)
    for i in range(len(bits)):  # without the sign, bits are ordered as magnitudes are, and NaN is the largest
        most = max(most, np.int32(bits[i] & WITHOUT_SIGN))
    if most > NOT_FINITE:
        return np.float32(np.nan)
    return np.float32(max(np.float32(float_of(most) / np.float32(levels)), TINY))


@compiled()
def scales(bits: Integers, block: int, levels: int, start: int, stop: int, scale: Floats) -> None:
    """The scales of the blocks from `start` to `stop`."""
    for k in range(start, stop):
        scale[k] = _scale(bits[k * block : (k + 1) * block], levels)


@compiled()
def _nearest(x: Floats, scale: np.float32, levels: np.int32, out: Bytes) -> None:
    most = np.int32(2 * levels)
    for i in range(len(x)):
        code = np.int32(np.int32(np.rint(x[i] / scale)) + levels)
        out[i] = np.uint8(min(max(code, np.int32(0)), most))


@compiled()
def _noise(key: np.uint32, out: Floats) -> None:
    """Uniform noise in [0, 1): hashes of the key and the numbers after it."""
    for i in range(len(out)):
        h = np.uint32(np.uint32(i) + key)
        h = np.uint32(np.uint32(h ^ np.uint32(h >> 16)) * np.uint32(0x7FEB352D))
        h = np.uint32(np.uint32(h ^ np.uint32(h >> 15)) * np.uint32(0x846CA68B))
        h = np.uint32(h ^ np.uint32(h >> 16))
        out[i] = np.float32(np.int32(h >> 8)) * np.float32(2.0**-24)


@compiled()
def _stochastic(x: Floats, scale: np.float32, levels: np.int32, uniform: Floats, out: Bytes) -> None:
    most = np.int32(2 * levels)
    for i in range(len(x)):
        code = np.int32(np.int32(np.floor(x[i] / scale + uniform[i])) + levels)
        out[i] = np.uint8(min(max(code, np.int32(0)), most))


@compiled()
def _to_levels(
    x: Floats, scale: np.float32, lows: Floats, gaps: Floats, negative: int, uniform: Floats, sizes: Floats, out: Bytes
) -> None:
    """The index of the level, the last step stochastic, with a bit for negative entries."""
    for i in range(len(x)):
        sizes[i] = abs(x[i]) / scale
        out[i] = 0
    for k in range(len(lows)):
        low, gap = lows[k], gaps[k]
        for i in range(len(x)):
            out[i] = np.uint8(out[i] + np.uint8(sizes[i] > low + uniform[i] * gap))
    for i in range(len(x)):
        out[i] = np.uint8(out[i] | (np.uint8(negative) if x[i] < 0 and out[i] > 0 else np.uint8(0)))


@compiled()
def _to_powers(x: Floats, scale: np.float32, levels: np.int32, negative: int, uniform: Floats, out: Bytes) -> None:
    """The exponent after noise is added to the mantissa: stochastic rounding to a power of two."""
    lowest, first = np.float32(2.0 ** (1 - levels)), np.int32(127 - levels)
    up = np.float32(2.0 ** (levels - 1))
    for i in range(len(x)):
        size = np.float32(abs(x[i]) / scale)
        above = np.int32(uniform[i] * np.float32(2.0**23))
        index = np.int32(np.int32(np.int32(bits_of(size) + above) >> 23) - first)
        index = min(index, levels)
        index = index if size >= lowest else np.int32(size * up > uniform[i])
        out[i] = np.uint8(index | (np.int32(negative) if x[i] < 0 and index > 0 else np.int32(0)))


@compiled()
def quantize(
    x: Floats,
    bits_of_x: Integers,
    block: int,
    bits: int,
    levels: int,
    negative: int,
    how: int,
    lows: Floats,
    gaps: Floats,
    key: np.uint32,
    start: int,
    stop: int,
    scale: Floats,
    known: bool,
    out: Bytes,
) -> None:
    """Quantize into the bytes from `start` to `stop`; computes the scales of their blocks unless they are known.

    Threads whose bytes share a block both compute its scale, and store the same number.
    """
    size, rows, zero = len(x), len(out), np.uint8(levels if how <= STOCHASTIC else 0)
    scratch, uniform, sizes = np.empty(SHORT, np.uint8), np.empty(SHORT, np.float32), np.empty(SHORT, np.float32)
    for begin in range(start, stop, RUN):
        for lane in range(8 // bits):
            entry = lane * rows + begin
            end = min(lane * rows + min(begin + RUN, stop), size)
            last, step = -1, np.float32(0)
            while entry < end:
                k = entry // block
                if k != last:
                    step = scale[k] if known else _scale(bits_of_x[k * block : (k + 1) * block], levels)
                    last, scale[k] = k, step
                some = x[entry : min(end, (k + 1) * block, entry + SHORT)]
                to, codes = out[entry - lane * rows : entry - lane * rows + len(some)], scratch[: len(some)]
                if how == TO_NEAREST_POWER:
                    uniform[: len(some)] = 0.5
                elif how != NEAREST:
                    _noise(np.uint32(key + np.uint32(entry)), uniform[: len(some)])
                if not step < np.inf:
                    codes[:] = zero
                elif how == NEAREST:
                    _nearest(some, step, np.int32(levels), codes)
                elif how == STOCHASTIC:
                    _stochastic(some, step, np.int32(levels), uniform, codes)
                elif how >= TO_POWERS:
                    _to_powers(some, step, np.int32(levels), negative, uniform, codes)
                else:
                    _to_levels(some, step, lows, gaps, negative, uniform, sizes, codes)
                up = (lane * bits) & 7
                if lane == 0:
                    for i in range(len(codes)):
                        to[i] = codes[i]
                else:
                    for i in range(len(codes)):
                        to[i] |= codes[i] << up
                entry += len(some)
