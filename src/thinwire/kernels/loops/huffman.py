"""Huffman coding; the twins are in kernels/huffman.py.

Four streams are interleaved, as within a stream each code must wait for the end of the one before. A table entry for
writing has the code in the top bits of 64 and its length in the lowest. A table entry for reading has, from the lowest
byte up: the number of bits, the number of bytes of symbols, and the symbols (one, or two bytes where both codes fit).
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled, inlined
from .words import load64, store16, store64, zeros_above

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Symbols = NDArray[np.uint8 | np.uint16]
Table = NDArray[np.uint32]
Long = np.uint64

ONE, SEVEN, EIGHT, MISSING = Long(1), Long(7), Long(8), Long(0xFF << 16)
LENGTH, BITS, TOP = Long(0xFF), Long(63), Long(1 << 63)


@inlined
def _flush(out: Bytes, at: Long, buffer: Long, length: Long) -> tuple[Long, Long]:
    """Write the top `length` bits of the buffer; returns the next byte to write, and the bits of it that are filled."""
    store64(out, at, buffer >> ((Long(0) - length) & BITS))
    length &= LENGTH
    return at + (length >> Long(3)), length & SEVEN


@compiled()
def _write_one(
    symbols: Symbols, codes: Words, i: Long, stop: Long, out: Bytes, at: Long, buffer: Long, length: Long
) -> Long:
    """Write the buffer and the codes of symbols from i on; returns where they end, or 0 if a symbol has no code."""
    missing = Long(0)
    while i < stop:
        code = codes[symbols[i]]
        buffer = buffer >> (code & BITS) | code
        missing |= code
        at, length = _flush(out, at, buffer, length + code)
        i += ONE
    return Long(0) if missing & MISSING else at + (length + SEVEN >> Long(3))


@compiled()
def _move(out: Bytes, start: Long, stop: Long, to: Long) -> Long:
    """Move bytes to a lower address, and possibly a few after them; returns where they end."""
    while start < stop:
        store64(out, to, load64(out, start))
        start += EIGHT
        to += EIGHT
    return to - (start - stop)


@inlined
def _write(
    symbols: Symbols, counts: Integers, codes: Words, step: Long, room: int, out: Bytes, sizes: NDArray[np.uint16]
) -> np.int64:
    """Write streams of `counts` symbols one after the other, and their sizes in bytes; returns the total, or -1.

    Four streams at a time get `room` bytes each, which includes 16 spare bytes; remaining streams are written one by
    one. A group of `step` symbols takes at most 48 bits. -1 means that a symbol has no code.
    """
    first, end, k = Long(0), ONE, 0  # starts at byte 1, as 0 stands for a symbol without a code
    while k < len(counts):
        if k + 4 > len(counts):
            last = first + Long(counts[k])
            stop = _write_one(symbols, codes, first, last, out, end, Long(0), Long(0))
            if stop == 0:
                return np.int64(-1)
            sizes[k] = stop - end
            first, end = last, stop
            k += 1
            continue
        n = Long(counts[k])
        i0, i1, i2, i3 = first, first + n, first + n + n, first + n + n + n
        last = i3 + Long(counts[k + 3])
        p0 = end
        p1 = p0 + Long(room)
        p2 = p1 + Long(room)
        p3 = p2 + Long(room)
        q0, q1, q2, q3 = p0, p1, p2, p3
        b0 = b1 = b2 = b3 = n0 = n1 = n2 = n3 = missing = Long(0)
        j = Long(0)
        while i3 + j + step <= last:
            for _ in range(step):
                c0, c1 = codes[symbols[i0 + j]], codes[symbols[i1 + j]]
                c2, c3 = codes[symbols[i2 + j]], codes[symbols[i3 + j]]
                b0 = b0 >> (c0 & BITS) | c0
                b1 = b1 >> (c1 & BITS) | c1
                b2 = b2 >> (c2 & BITS) | c2
                b3 = b3 >> (c3 & BITS) | c3
                n0 += c0
                n1 += c1
                n2 += c2
                n3 += c3
                j += ONE
            missing |= n0 | n1 | n2 | n3
            q0, n0 = _flush(out, q0, b0, n0)
            q1, n1 = _flush(out, q1, b1, n1)
            q2, n2 = _flush(out, q2, b2, n2)
            q3, n3 = _flush(out, q3, b3, n3)
        q0 = _write_one(symbols, codes, i0 + j, i1, out, q0, b0, n0)
        q1 = _write_one(symbols, codes, i1 + j, i2, out, q1, b1, n1)
        q2 = _write_one(symbols, codes, i2 + j, i3, out, q2, b2, n2)
        q3 = _write_one(symbols, codes, i3 + j, last, out, q3, b3, n3)
        if missing & MISSING or q0 == 0 or q1 == 0 or q2 == 0 or q3 == 0:
            return np.int64(-1)
        sizes[k], sizes[k + 1], sizes[k + 2], sizes[k + 3] = q0 - p0, q1 - p1, q2 - p2, q3 - p3
        end = _move(out, p3, q3, _move(out, p2, q2, _move(out, p1, q1, q0)))
        first = last
        k += 4
    return np.int64(end - ONE)


@inlined
def _word(data: Bytes, at: Long) -> Long:
    """Eight bytes as a word, with zeros past the end."""
    size = Long(len(data))
    if at + EIGHT <= size:
        return Long(load64(data, at))
    word = shift = Long(0)
    while at < size:
        word |= Long(data[at]) << shift
        shift += EIGHT
        at += ONE
    return word


@inlined
def _refill(data: Bytes, at: Long, buffer: Long) -> tuple[Long, Long]:
    """Refill the buffer to at least 56 bits; returns its byte position and the buffer.

    Bits that were read have been shifted out at the bottom. The marker bit at the top shows how many they were.
    """
    used = zeros_above(buffer)
    at += used >> Long(3)
    return at, (load64(data, at) | TOP) >> (used & SEVEN)


@inlined
def _read_symbols(buffer: Long, double: Table, mask: Long, out: Bytes, i: Long) -> tuple[Long, Long]:
    """Decode one symbol or two from the buffer; returns the buffer, and the next byte to write."""
    found = Long(double[buffer & mask])
    store16(out, i, found >> Long(16))
    return buffer >> (found & BITS), i + (found >> EIGHT & LENGTH)


@inlined
def _rounds(data: Bytes, at: Long, room: Long) -> Long:
    """The number of groups that can be read without bounds checks: each takes up to 6 bytes, and gives up to 8."""
    size = Long(len(data))
    if at + Long(16) > size:
        return Long(0)
    return min(room >> Long(3), (size - at - Long(16)) // Long(6))


@compiled()
def _read_one(
    data: Bytes,
    at: Long,
    buffer: Long,
    double: Table,
    single: Table,
    mask: Long,
    step: Long,
    out: Bytes,
    i: Long,
    stop: Long,
) -> Long:
    """Read symbols from byte i to `stop` of `out`; returns the bit position in the data where they end."""
    rounds = _rounds(data, at, stop - i)
    while rounds > Long(0):
        for _ in range(rounds):
            at, buffer = _refill(data, at, buffer)
            for _ in range(step):
                buffer, i = _read_symbols(buffer, double, mask, out, i)
        rounds = _rounds(data, at, stop - i)
    position = (at << Long(3)) + zeros_above(buffer)
    while i < stop:
        found = Long(single[_word(data, position >> Long(3)) >> (position & SEVEN) & mask])
        out[i] = found >> Long(16)
        if found >> EIGHT & LENGTH == Long(2):
            out[i + ONE] = found >> Long(24)
        position += found & LENGTH
        i += found >> EIGHT & LENGTH
    return Long(position)


@inlined
def _read(
    data: Bytes,
    starts: Integers,
    counts: Integers,
    double: Table,
    single: Table,
    limit: Long,
    step: Long,
    out: Bytes,
    ends: Integers,
) -> None:
    """Read streams of `counts` bytes of symbols from `starts`, and write the bit positions where they end.

    The caller must check the ends: a corrupt stream may read into the next one, or zeros past the end of the data.
    """
    mask = (ONE << limit) - ONE
    first, k = Long(0), 0
    while k < len(counts):
        if k + 4 > len(counts):
            last = first + Long(counts[k])
            ends[k] = _read_one(data, Long(starts[k]), TOP, double, single, mask, step, out, first, last)
            first = last
            k += 1
            continue
        n = Long(counts[k])
        i0, i1, i2, i3 = first, first + n, first + n + n, first + n + n + n
        s0, s1, s2, s3 = i1, i2, i3, i3 + Long(counts[k + 3])
        p0, p1, p2, p3 = Long(starts[k]), Long(starts[k + 1]), Long(starts[k + 2]), Long(starts[k + 3])
        b0 = b1 = b2 = b3 = TOP
        rounds = ONE
        while rounds > Long(0):
            farthest, room = max(max(p0, p1), max(p2, p3)), min(min(s0 - i0, s1 - i1), min(s2 - i2, s3 - i3))
            rounds = _rounds(data, farthest, room)
            for _ in range(rounds):
                p0, b0 = _refill(data, p0, b0)
                p1, b1 = _refill(data, p1, b1)
                p2, b2 = _refill(data, p2, b2)
                p3, b3 = _refill(data, p3, b3)
                for _ in range(step):
                    b0, i0 = _read_symbols(b0, double, mask, out, i0)
                    b1, i1 = _read_symbols(b1, double, mask, out, i1)
                    b2, i2 = _read_symbols(b2, double, mask, out, i2)
                    b3, i3 = _read_symbols(b3, double, mask, out, i3)
        ends[k] = _read_one(data, p0, b0, double, single, mask, step, out, i0, s0)
        ends[k + 1] = _read_one(data, p1, b1, double, single, mask, step, out, i1, s1)
        ends[k + 2] = _read_one(data, p2, b2, double, single, mask, step, out, i2, s2)
        ends[k + 3] = _read_one(data, p3, b3, double, single, mask, step, out, i3, s3)
        first = s3
        k += 4


# The code length limit and the codes per 48 bits are constants, so that the compiler unrolls the inner loops.


@compiled()
def write_huffman12(
    symbols: Symbols, counts: Integers, codes: Words, room: int, out: Bytes, sizes: NDArray[np.uint16]
) -> np.int64:
    return _write(symbols, counts, codes, Long(4), room, out, sizes)


@compiled()
def write_huffman16(
    symbols: Symbols, counts: Integers, codes: Words, room: int, out: Bytes, sizes: NDArray[np.uint16]
) -> np.int64:
    return _write(symbols, counts, codes, Long(3), room, out, sizes)


@compiled()
def read_huffman12(
    data: Bytes, starts: Integers, counts: Integers, double: Table, single: Table, out: Bytes, ends: Integers
) -> None:
    _read(data, starts, counts, double, single, Long(12), Long(4), out, ends)


@compiled()
def read_huffman16(
    data: Bytes, starts: Integers, counts: Integers, double: Table, single: Table, out: Bytes, ends: Integers
) -> None:
    _read(data, starts, counts, double, single, Long(16), Long(3), out, ends)
