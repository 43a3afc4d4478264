"""rANS coding; the twins are in kernels/rans.py.

Eight states are interleaved, as each step of a state must wait for the last. There are hardly enough registers for
them, so the table entry of a symbol is a few bytes, from which each number is loaded separately.

To write a symbol, the entry has 16 bytes: 2**(32 + bits) divided by its frequency and rounded up, which is exact enough
for every state (8); the state from which on a word is written first, or 1 if it has no frequency (4); the start of its
slots (2); 2**bits minus its frequency (2). To read it, the entry has 4: its frequency and start.
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
def _encode(
    x: Long, at: Long, codes: Bytes, symbol: int, down: Long, out: Bytes, seen: Long
) -> tuple[Long, Long, Long]:
    """Encode a symbol into the state; if the state would grow too large, its lowest 16 bits are written first."""
    code = Long(symbol) << FOUR
    most = load32(codes, code + EIGHT)
    spill = Long(x >= most)
    store16(out, at - TWO, x)
    x = x >> SIXTEEN if spill else x
    quotient = x * load64(codes, code) >> down
    start, short = load16(codes, code + Long(12)), load16(codes, code + Long(14))
    return x + start + quotient * short, at - (spill << ONE), seen | most


@inlined
def _write(symbols: Symbols, codes: Bytes, bits: Long, states: Words, out: Bytes) -> np.int64:
    """Write the symbols, last to first, with the words at the end of `out`; returns where the words start.

    `out` has room for a word per symbol, and one more. Returns -1 if a symbol has no frequency.
    """
    down, at, seen = HALF + bits, Long(len(out)), Long(0)
    i, number = Long(len(symbols)), Long(len(states))
    full = i - i % number if number == EIGHT else Long(0)
    while i > full:
        i -= ONE
        j = i % number
        states[j], at, seen = _encode(states[j], at, codes, symbols[i], down, out, seen)
    if i > Long(0):
        a, b, c, d = states[0], states[1], states[2], states[3]
        e, f, g, h = states[4], states[5], states[6], states[7]
        while i > Long(0):
            i -= EIGHT
            h, at, seen = _encode(h, at, codes, symbols[i + Long(7)], down, out, seen)
            g, at, seen = _encode(g, at, codes, symbols[i + Long(6)], down, out, seen)
            f, at, seen = _encode(f, at, codes, symbols[i + Long(5)], down, out, seen)
            e, at, seen = _encode(e, at, codes, symbols[i + Long(4)], down, out, seen)
            d, at, seen = _encode(d, at, codes, symbols[i + Long(3)], down, out, seen)
            c, at, seen = _encode(c, at, codes, symbols[i + Long(2)], down, out, seen)
            b, at, seen = _encode(b, at, codes, symbols[i + Long(1)], down, out, seen)
            a, at, seen = _encode(a, at, codes, symbols[i], down, out, seen)
        states[0], states[1], states[2], states[3] = a, b, c, d
        states[4], states[5], states[6], states[7] = e, f, g, h
    return np.int64(-1) if seen & ONE else np.int64(at)


@inlined
def _decode(x: Long, bits: Long, slots: Symbols, shares: Bytes, out: Symbols, i: Long) -> Long:
    """Decode a symbol from the state into out[i]; returns the state without it."""
    slot = x & ((ONE << bits) - ONE)
    symbol = slots[slot]
    out[i] = symbol
    share = Long(symbol) << TWO
    return Long(load16(shares, share) * (x >> bits) + slot - load16(shares, share + TWO))


@inlined
def _refill(x: Long, data: Bytes, at: Long) -> tuple[Long, Long]:
    refill = Long(x < LEAST)
    word = load16(data, at)
    return (x << SIXTEEN | word if refill else x), at + (refill << ONE)


@inlined
def _read(data: Bytes, start: int, states: Words, slots: Symbols, shares: Bytes, bits: Long, out: Symbols) -> np.int64:
    """Read symbols from the states, which are updated, and the words; returns where the words end.

    The caller must check this end and the final states. Returns -1 if the data ends early.
    """
    at, size = Long(start), Long(len(data))
    i, number = Long(0), Long(len(states))
    if number == EIGHT:
        a, b, c, d = states[0], states[1], states[2], states[3]
        e, f, g, h = states[4], states[5], states[6], states[7]
        while i + EIGHT <= Long(len(out)) and at + SIXTEEN <= size:
            a, at = _refill(_decode(a, bits, slots, shares, out, i), data, at)
            b, at = _refill(_decode(b, bits, slots, shares, out, i + Long(1)), data, at)
            c, at = _refill(_decode(c, bits, slots, shares, out, i + Long(2)), data, at)
            d, at = _refill(_decode(d, bits, slots, shares, out, i + Long(3)), data, at)
            e, at = _refill(_decode(e, bits, slots, shares, out, i + Long(4)), data, at)
            f, at = _refill(_decode(f, bits, slots, shares, out, i + Long(5)), data, at)
            g, at = _refill(_decode(g, bits, slots, shares, out, i + Long(6)), data, at)
            h, at = _refill(_decode(h, bits, slots, shares, out, i + Long(7)), data, at)
            i += EIGHT
        states[0], states[1], states[2], states[3] = a, b, c, d
        states[4], states[5], states[6], states[7] = e, f, g, h
    while i < Long(len(out)):
        j = i % number
        x = _decode(states[j], bits, slots, shares, out, i)
        if x < LEAST:
            if at + TWO > size:
                return np.int64(-1)
            x, at = _refill(x, data, at)
        states[j] = x
        i += ONE
    return np.int64(at)


# The bits of frequencies are constants, as there are too few registers to keep them.


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
