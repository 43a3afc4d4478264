"""Packing and unpacking of small integers; the twins are in kernels/bits.py.

Packed values lie in lanes: byte j holds the entries j, j + m, j + 2m, ... of m bytes. So loops run along a lane, where
neighbors are adjacent, and most become vector instructions.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]


@compiled()
def _widest(bits: int) -> int:
    """The width of the widest field that fits into `bits` bits."""
    return 8 if bits >= 8 else 4 if bits >= 4 else 2 if bits >= 2 else 1


@compiled()
def pack(codes: Integers, width: int, out: Bytes) -> None:
    """Pack all fields of the codes, each in its lanes."""
    count, shift, start = len(codes), 0, 0
    while shift < width:
        bits = _widest(width - shift)
        rows = (count * bits + 7) // 8
        field = out[start : start + rows]
        mask = (1 << bits) - 1
        for lane in range(8 // bits):
            some, up = codes[min(lane * rows, count) : min((lane + 1) * rows, count)], lane * bits
            if lane == 0:
                for j in range(len(some)):
                    field[j] = (some[j] >> shift) & mask
            else:
                for j in range(len(some)):
                    field[j] |= ((some[j] >> shift) & mask) << up
        start += rows
        shift += bits


@compiled()
def unpack_range(packed: Bytes, count: int, width: int, first: int, byte: Bytes, out: Integers) -> None:
    """Unpack codes from index `first` on, as many as `out` has room for, eight bits of each at a time."""
    shift = start = 0
    while shift == 0 or shift < width:
        byte[:] = 0
        filled = 0
        while shift + filled < width and filled < 8:
            bits = _widest(width - shift - filled)
            rows = (count * bits + 7) // 8
            mask, up = np.uint8((1 << bits) - 1), filled & 7
            i = 0
            while i < len(out):
                lane = (first + i) // rows
                begin = (first + i) - lane * rows
                some = packed[start + begin : start + min(rows, begin + len(out) - i)]
                to, down = byte[i : i + len(some)], (lane * bits) & 7  # & 7 shows the compiler that bytes suffice
                for j in range(len(some)):
                    to[j] |= ((some[j] >> down) & mask) << up
                i += len(some)
            start += rows
            filled += bits
        if shift == 0:
            for i in range(len(out)):
                out[i] = byte[i]
        else:
            for i in range(len(out)):
                out[i] |= np.int64(byte[i]) << shift
        shift += 8
