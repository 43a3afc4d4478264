"""Few bits an entry, and a scale for each block; the twins are in quantise.py above.

Codes lie in lanes: of m bytes, byte j holds the entries j, j + m, ... . A loop fills some bytes, lane after lane, so
that several threads may fill different ones. numba widens every sum of small integers to 64 bits, of which vectors hold
few: so what is small is made small again at every step.
"""

import numpy as np
from numpy.typing import NDArray

from .instructions import float_of
from .jit import compiled

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Integers = NDArray[np.int32]

RUN = 2**19  # bytes of a lane that stay in the cache while the others are joined to them
SHORT = 2048  # entries that are coded before they are joined
TINY = np.finfo(np.float32).tiny
NOT_FINITE = np.int32(0x7F800000)  # the bits of infinity, above which are those of NaN
WITHOUT_SIGN = np.int32(0x7FFFFFFF)


@compiled()
def _scale(bits: Integers, levels: int) -> np.float32:
    """The largest magnitude in as many levels; NaN if there is one. Numbers are given by their bits."""
    most = np.int32(0)
    for i in range(len(bits)):  # without the sign, bits are ordered as sizes are, and NaN is the largest
        most = max(most, np.int32(bits[i] & WITHOUT_SIGN))
    if most > NOT_FINITE:
        return np.float32(np.nan)
    return np.float32(max(np.float32(float_of(most) / np.float32(levels)), TINY))


@compiled()
def scales(bits: Integers, block: int, levels: int, start: int, stop: int, scale: Floats) -> None:
    """The scales of the blocks from one to another."""
    for k in range(start, stop):
        scale[k] = _scale(bits[k * block : (k + 1) * block], levels)


@compiled()
def _nearest(x: Floats, scale: np.float32, levels: np.int32, out: Bytes) -> None:
    most = np.int32(2 * levels)
    for i in range(len(x)):
        code = np.int32(np.int32(np.rint(x[i] / scale)) + levels)
        out[i] = np.uint8(min(max(code, np.int32(0)), most))


@compiled()
def _by_chance(x: Floats, scale: np.float32, levels: np.int32, key: np.uint32, out: Bytes) -> None:
    most = np.int32(2 * levels)
    for i in range(len(x)):
        h = np.uint32(np.uint32(i) + key)
        h = np.uint32(np.uint32(h ^ np.uint32(h >> 16)) * np.uint32(0x7FEB352D))
        h = np.uint32(np.uint32(h ^ np.uint32(h >> 15)) * np.uint32(0x846CA68B))
        h = np.uint32(h ^ np.uint32(h >> 16))
        chance = np.float32(np.int32(h >> 8)) * np.float32(2.0**-24)
        code = np.int32(np.int32(np.floor(x[i] / scale + chance)) + levels)
        out[i] = np.uint8(min(max(code, np.int32(0)), most))


@compiled()
def quantise(
    x: Floats,
    bits_of_x: Integers,
    block: int,
    bits: int,
    stochastic: bool,
    key: np.uint32,
    start: int,
    stop: int,
    scale: Floats,
    known: bool,
    out: Bytes,
) -> None:
    """The bytes from one to another, and the scales of the blocks in them unless they are known.

    Threads whose bytes share a block both compute its scale, and store the same.
    """
    size, rows, levels = len(x), len(out), (1 << (bits - 1)) - 1
    scratch = np.empty(SHORT, np.uint8)
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
                if not step < np.inf:
                    codes[:] = levels
                elif stochastic:
                    _by_chance(some, step, np.int32(levels), np.uint32(key + np.uint32(entry)), codes)
                else:
                    _nearest(some, step, np.int32(levels), codes)
                up = (lane * bits) & 7
                if lane == 0:
                    for i in range(len(codes)):
                        to[i] = codes[i]
                else:
                    for i in range(len(codes)):
                        to[i] |= codes[i] << up
                entry += len(some)
