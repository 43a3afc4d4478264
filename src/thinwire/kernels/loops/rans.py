"""Symbols written into states and words, and read from them; the twins are in rans.py above.

Eight states are worked on in turns, as each has to wait for itself. There are hardly enough registers for them, so what
is known of a symbol lies in bytes from which each number is fetched by itself.

To write it, there are 16: 2**(32 + bits) divided by its share and rounded up, which for every state is exact enough
(8); from which state on a word is written first, or 1 if it has no share (4); where its share starts (2), and how much
that is short of the whole (2). To read it, there are 4: its share, and where that starts.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled, inlined
from .words import load16, load32, load64, store16

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Symbols = NDArray[np.uint8 | np.uint16]
Long = np.uint64

ONE, TWO, FOUR, EIGHT, SIXTEEN, HALF = Long(1), Long(2), Long(4), Long(8), Long(16), Long(32)
LEAST = Long(1 << 16)


@inlined
def _put(x: Long, at: Long, codes: Bytes, symbol: int, down: Long, out: Bytes, seen: Long) -> tuple[Long, Long, Long]:
    """The state that tells the symbol as well; if it would be too large, its lowest 16 bits are written out before."""
    code = Long(symbol) << FOUR
    most = load32(codes, code + EIGHT)
    full = Long(x >= most)
    store16(out, at - TWO, x)
    x = x >> SIXTEEN if full else x
    quotient = x * load64(codes, code) >> down
    start, short = load16(codes, code + Long(12)), load16(codes, code + Long(14))
    return x + start + quotient * short, at - (full << ONE), seen | most


@inlined
def _write(symbols: Symbols, codes: Bytes, bits: Long, states: Words, out: Bytes) -> np.int64:
    """Write the symbols, last to first, and the words from the end of `out` on; where they start, -1 if one cannot be.

    There is room for a word for each symbol, and one more.
    """
    down, at, seen = HALF + bits, Long(len(out)), Long(0)
    i, number = Long(len(symbols)), Long(len(states))
    whole = i - i % number if number == EIGHT else Long(0)
    while i > whole:
        i -= ONE
        j = i % number
        states[j], at, seen = _put(states[j], at, codes, symbols[i], down, out, seen)
    if i > Long(0):
        a, b, c, d = states[0], states[1], states[2], states[3]
        e, f, g, h = states[4], states[5], states[6], states[7]
        while i > Long(0):
            i -= EIGHT
            h, at, seen = _put(h, at, codes, symbols[i + Long(7)], down, out, seen)
            g, at, seen = _put(g, at, codes, symbols[i + Long(6)], down, out, seen)
            f, at, seen = _put(f, at, codes, symbols[i + Long(5)], down, out, seen)
            e, at, seen = _put(e, at, codes, symbols[i + Long(4)], down, out, seen)
            d, at, seen = _put(d, at, codes, symbols[i + Long(3)], down, out, seen)
            c, at, seen = _put(c, at, codes, symbols[i + Long(2)], down, out, seen)
            b, at, seen = _put(b, at, codes, symbols[i + Long(1)], down, out, seen)
            a, at, seen = _put(a, at, codes, symbols[i], down, out, seen)
        states[0], states[1], states[2], states[3] = a, b, c, d
        states[4], states[5], states[6], states[7] = e, f, g, h
    return np.int64(-1) if seen & ONE else np.int64(at)


@inlined
def _got(x: Long, bits: Long, slots: Symbols, shares: Bytes, out: Symbols, i: Long) -> Long:
    """Note the symbol that the state tells; the state without it."""
    slot = x & ((ONE << bits) - ONE)
    symbol = slots[slot]
    out[i] = symbol
    share = Long(symbol) << TWO
    return Long(load16(shares, share) * (x >> bits) + slot - load16(shares, share + TWO))


@inlined
def _refilled(x: Long, data: Bytes, at: Long) -> tuple[Long, Long]:
    few = Long(x < LEAST)
    word = load16(data, at)
    return (x << SIXTEEN | word if few else x), at + (few << ONE)


@inlined
def _read(data: Bytes, start: int, states: Words, slots: Symbols, shares: Bytes, bits: Long, out: Symbols) -> np.int64:
    """Read symbols from the states, which are left as they are then, and from the words; where these end.

    Whether that is right is for others to see. -1 if the data ends before.
    """
    at, size = Long(start), Long(len(data))
    i, number = Long(0), Long(len(states))
    if number == EIGHT:
        a, b, c, d = states[0], states[1], states[2], states[3]
        e, f, g, h = states[4], states[5], states[6], states[7]
        while i + EIGHT <= Long(len(out)) and at + SIXTEEN <= size:
            a, at = _refilled(_got(a, bits, slots, shares, out, i), data, at)
            b, at = _refilled(_got(b, bits, slots, shares, out, i + Long(1)), data, at)
            c, at = _refilled(_got(c, bits, slots, shares, out, i + Long(2)), data, at)
            d, at = _refilled(_got(d, bits, slots, shares, out, i + Long(3)), data, at)
            e, at = _refilled(_got(e, bits, slots, shares, out, i + Long(4)), data, at)
            f, at = _refilled(_got(f, bits, slots, shares, out, i + Long(5)), data, at)
            g, at = _refilled(_got(g, bits, slots, shares, out, i + Long(6)), data, at)
            h, at = _refilled(_got(h, bits, slots, shares, out, i + Long(7)), data, at)
            i += EIGHT
        states[0], states[1], states[2], states[3] = a, b, c, d
        states[4], states[5], states[6], states[7] = e, f, g, h
    while i < Long(len(out)):
        j = i % number
        x = _got(states[j], bits, slots, shares, out, i)
        if x < LEAST:
            if at + TWO > size:
                return np.int64(-1)
            x, at = _refilled(x, data, at)
        states[j] = x
        i += ONE
    return np.int64(at)


# The bits of a share are numbers in what is compiled: there are too few registers to keep them.


@compiled()
def write_rans14(symbols: Symbols, codes: Bytes, states: Words, out: Bytes) -> np.int64:
    return _write(symbols, codes, Long(14), states, out)


@compiled()
def write_rans16(symbols: Symbols, codes: Bytes, states: Words, out: Bytes) -> np.int64:
    return _write(symbols, codes, Long(16), states, out)


@compiled()
def read_rans14(data: Bytes, start: int, states: Words, slots: Symbols, shares: Bytes, out: Symbols) -> np.int64:
    return _read(data, start, states, slots, shares, Long(14), out)


@compiled()
def read_rans16(data: Bytes, start: int, states: Words, slots: Symbols, shares: Bytes, out: Symbols) -> np.int64:
    return _read(data, start, states, slots, shares, Long(16), out)
