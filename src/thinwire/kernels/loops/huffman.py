"""Huffman's code, written and read; the twins are in huffman.py above.

Four streams are worked on in turns, as within one each code has to wait for where the last one ends. A code that is to
be written has its bits at the top of 64 and its length at the bottom. A look-up for what was read gives a length in the
lowest byte and a symbol above it.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled, inlined
from .words import load64, store64, zeros_above

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Symbols = NDArray[np.uint8 | np.uint16]
Look = NDArray[np.uint16 | np.uint32]
Long = np.uint64

ONE, SEVEN, EIGHT, MISSING = Long(1), Long(7), Long(8), Long(0xFF << 16)
LENGTH, BITS, TOP = Long(0xFF), Long(63), Long(1 << 63)


@inlined
def _flushed(out: Bytes, at: Long, held: Long, length: Long) -> tuple[Long, Long]:
    """Write the `length` bits at the top of what is held; where to go on, and how many bits are held there already."""
    store64(out, at, held >> ((Long(0) - length) & BITS))
    length &= LENGTH
    return at + (length >> Long(3)), length & SEVEN


@compiled()
def _write_one(
    symbols: Symbols, codes: Words, i: Long, stop: Long, out: Bytes, at: Long, held: Long, length: Long
) -> Long:
    """Write the codes of the symbols from i on, after what is held; where they end, or 0 if one has no code."""
    missing = Long(0)
    while i < stop:
        code = codes[symbols[i]]
        held = held >> (code & BITS) | code
        missing |= code
        at, length = _flushed(out, at, held, length + code)
        i += ONE
    return Long(0) if missing & MISSING else at + (length + SEVEN >> Long(3))


@compiled()
def _moved(out: Bytes, start: Long, stop: Long, to: Long) -> Long:
    """Move bytes to before where they are, and perhaps some more with them; where they end."""
    while start < stop:
        store64(out, to, load64(out, start))
        start += EIGHT
        to += EIGHT
    return to - (start - stop)


@inlined
def _write(
    symbols: Symbols, counts: Integers, codes: Words, step: Long, room: int, out: Bytes, sizes: NDArray[np.uint16]
) -> np.int64:
    """Write streams of so many symbols one after the other, and note their sizes; how long all are, or -1 if not.

    Four at a time each get so much room, of which 16 bytes are not for them, and the rest of the streams one by one.
    A group of symbols takes no more than 48 bits.
    """
    first, end, k = Long(0), ONE, 0  # one byte further on, as 0 stands for no end
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
            q0, n0 = _flushed(out, q0, b0, n0)
            q1, n1 = _flushed(out, q1, b1, n1)
            q2, n2 = _flushed(out, q2, b2, n2)
            q3, n3 = _flushed(out, q3, b3, n3)
        q0 = _write_one(symbols, codes, i0 + j, i1, out, q0, b0, n0)
        q1 = _write_one(symbols, codes, i1 + j, i2, out, q1, b1, n1)
        q2 = _write_one(symbols, codes, i2 + j, i3, out, q2, b2, n2)
        q3 = _write_one(symbols, codes, i3 + j, last, out, q3, b3, n3)
        if missing & MISSING or q0 == 0 or q1 == 0 or q2 == 0 or q3 == 0:
            return np.int64(-1)
        sizes[k], sizes[k + 1], sizes[k + 2], sizes[k + 3] = q0 - p0, q1 - p1, q2 - p2, q3 - p3
        end = _moved(out, p3, q3, _moved(out, p2, q2, _moved(out, p1, q1, q0)))
        first = last
        k += 4
    return np.int64(end - ONE)


@inlined
def _word(data: Bytes, at: Long) -> Long:
    """Eight bytes, with zeros beyond the end."""
    size = Long(len(data))
    if at + EIGHT <= size:
        return Long(load64(data, at))
    word = shift = Long(0)
    while at < size:
        word |= Long(data[at]) << shift
        shift += EIGHT
        at += ONE
    return word


@compiled()
def _read_one(data: Bytes, place: Long, look: Look, mask: Long, out: Symbols, i: Long, stop: Long) -> Long:
    """Read symbols from i on, from a bit on; the bit where they end."""
    while i < stop:
        found = look[_word(data, place >> Long(3)) >> (place & SEVEN) & mask]
        out[i] = found >> 8
        place += Long(found) & BITS
        i += ONE
    return place


@inlined
def _filled(data: Bytes, at: Long, held: Long) -> tuple[Long, Long]:
    """The next bits to look at, of which there are 56 or more, and where they are from.

    Bits that were looked at are shifted out at the bottom. A bit that was set at the top tells how many they were.
    """
    used = zeros_above(held)
    at += used >> Long(3)
    return at, (load64(data, at) | TOP) >> (used & SEVEN)


@inlined
def _took(held: Long, look: Look, mask: Long, out: Symbols, i: Long) -> Long:
    """Read one symbol; what is held then."""
    found = look[held & mask]
    out[i] = found >> 8
    return held >> (Long(found) & BITS)


@inlined
def _read(
    data: Bytes, starts: Integers, counts: Integers, look: Look, limit: Long, step: Long, out: Symbols, ends: Integers
) -> None:
    """Read streams of so many symbols that start at these bytes, and note at which bits of the data they end.

    Whether that is right is for others to see: what is read may be of the next stream, or zeros beyond the data.
    """
    mask, size = (ONE << limit) - ONE, Long(len(data))
    first, k = Long(0), 0
    while k < len(counts):
        if k + 4 > len(counts):
            last = first + Long(counts[k])
            ends[k] = _read_one(data, Long(starts[k]) << Long(3), look, mask, out, first, last)
            first = last
            k += 1
            continue
        n = Long(counts[k])
        i0, i1, i2, i3 = first, first + n, first + n + n, first + n + n + n
        last = i3 + Long(counts[k + 3])
        p0, p1, p2, p3 = Long(starts[k]), Long(starts[k + 1]), Long(starts[k + 2]), Long(starts[k + 3])
        b0 = b1 = b2 = b3 = TOP
        j = Long(0)
        # A group takes at most 6 bytes, and 8 are looked at from there on.
        while i3 + j + step <= last and max(max(p0, p1), max(p2, p3)) + Long(16) <= size:
            p0, b0 = _filled(data, p0, b0)
            p1, b1 = _filled(data, p1, b1)
            p2, b2 = _filled(data, p2, b2)
            p3, b3 = _filled(data, p3, b3)
            for _ in range(step):
                b0 = _took(b0, look, mask, out, i0 + j)
                b1 = _took(b1, look, mask, out, i1 + j)
                b2 = _took(b2, look, mask, out, i2 + j)
                b3 = _took(b3, look, mask, out, i3 + j)
                j += ONE
        ends[k] = _read_one(data, (p0 << Long(3)) + zeros_above(b0), look, mask, out, i0 + j, i1)
        ends[k + 1] = _read_one(data, (p1 << Long(3)) + zeros_above(b1), look, mask, out, i1 + j, i2)
        ends[k + 2] = _read_one(data, (p2 << Long(3)) + zeros_above(b2), look, mask, out, i2 + j, i3)
        ends[k + 3] = _read_one(data, (p3 << Long(3)) + zeros_above(b3), look, mask, out, i3 + j, last)
        first = last
        k += 4


# The longest code, and how many of them fit into 48 bits, are numbers in what is compiled: so it has no loops for them.


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
def read_huffman12(data: Bytes, starts: Integers, counts: Integers, look: Look, out: Symbols, ends: Integers) -> None:
    _read(data, starts, counts, look, Long(12), Long(4), out, ends)


@compiled()
def read_huffman16(data: Bytes, starts: Integers, counts: Integers, look: Look, out: Symbols, ends: Integers) -> None:
    _read(data, starts, counts, look, Long(16), Long(3), out, ends)
