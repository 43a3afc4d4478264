"""Huffman's code, written and read; the twins are in huffman.py above.

Four streams are worked on in turns, as within one each code has to wait for where the last one ends. A code that is to
be written has its bits at the top of 64 and its length at the bottom. A look-up for what was read gives, from the
lowest byte up, how many bits that is, how many bytes of symbols, and these: one or, of bytes and where both fit, two.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled, inlined
from .words import load64, store16, store64, zeros_above

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Symbols = NDArray[np.uint8 | np.uint16]
Look = NDArray[np.uint32]
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


@inlined
def _filled(data: Bytes, at: Long, held: Long) -> tuple[Long, Long]:
    """The next bits to look at, of which there are 56 or more, and where they are from.

    Bits that were looked at are shifted out at the bottom. A bit that was set at the top tells how many they were.
    """
    used = zeros_above(held)
    at += used >> Long(3)
    return at, (load64(data, at) | TOP) >> (used & SEVEN)


@inlined
def _took(held: Long, look: Look, mask: Long, out: Bytes, i: Long) -> tuple[Long, Long]:
    """Read what the next bits tell, one symbol or two; what is held then, and where to go on."""
    found = Long(look[held & mask])
    store16(out, i, found >> Long(16))
    return held >> (found & BITS), i + (found >> EIGHT & LENGTH)


@inlined
def _rounds(data: Bytes, at: Long, room: Long) -> Long:
    """How many groups can be read without looking where they end: each takes up to 6 bytes, and gives up to 8."""
    size = Long(len(data))
    if at + Long(16) > size:
        return Long(0)
    return min(room >> Long(3), (size - at - Long(16)) // Long(6))


@compiled()
def _read_one(
    data: Bytes, at: Long, held: Long, look: Look, single: Look, mask: Long, step: Long, out: Bytes, i: Long, stop: Long
) -> Long:
    """Read symbols from i on, up to where they stop; the bit where they end."""
    rounds = _rounds(data, at, stop - i)
    while rounds > Long(0):
        for _ in range(rounds):
            at, held = _filled(data, at, held)
            for _ in range(step):
                held, i = _took(held, look, mask, out, i)
        rounds = _rounds(data, at, stop - i)
    place = (at << Long(3)) + zeros_above(held)
    while i < stop:
        found = Long(single[_word(data, place >> Long(3)) >> (place & SEVEN) & mask])
        out[i] = found >> Long(16)
        if found >> EIGHT & LENGTH == Long(2):
            out[i + ONE] = found >> Long(24)
        place += found & LENGTH
        i += found >> EIGHT & LENGTH
    return Long(place)


@inlined
def _read(
    data: Bytes,
    starts: Integers,
    counts: Integers,
    look: Look,
    single: Look,
    limit: Long,
    step: Long,
    out: Bytes,
    ends: Integers,
) -> None:
    """Read streams that give so many bytes and start at these, and note at which bits of the data they end.

    Whether that is right is for others to see: what is read may be of the next stream, or zeros beyond the data.
    """
    mask = (ONE << limit) - ONE
    first, k = Long(0), 0
    while k < len(counts):
        if k + 4 > len(counts):
            last = first + Long(counts[k])
            ends[k] = _read_one(data, Long(starts[k]), TOP, look, single, mask, step, out, first, last)
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
                p0, b0 = _filled(data, p0, b0)
                p1, b1 = _filled(data, p1, b1)
                p2, b2 = _filled(data, p2, b2)
                p3, b3 = _filled(data, p3, b3)
                for _ in range(step):
                    b0, i0 = _took(b0, look, mask, out, i0)
                    b1, i1 = _took(b1, look, mask, out, i1)
                    b2, i2 = _took(b2, look, mask, out, i2)
                    b3, i3 = _took(b3, look, mask, out, i3)
        ends[k] = _read_one(data, p0, b0, look, single, mask, step, out, i0, s0)
        ends[k + 1] = _read_one(data, p1, b1, look, single, mask, step, out, i1, s1)
        ends[k + 2] = _read_one(data, p2, b2, look, single, mask, step, out, i2, s2)
        ends[k + 3] = _read_one(data, p3, b3, look, single, mask, step, out, i3, s3)
        first = s3
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
def read_huffman12(
    data: Bytes, starts: Integers, counts: Integers, look: Look, single: Look, out: Bytes, ends: Integers
) -> None:
    _read(data, starts, counts, look, single, Long(12), Long(4), out, ends)


@compiled()
def read_huffman16(
    data: Bytes, starts: Integers, counts: Integers, look: Look, single: Look, out: Bytes, ends: Integers
) -> None:
    _read(data, starts, counts, look, single, Long(16), Long(3), out, ends)
