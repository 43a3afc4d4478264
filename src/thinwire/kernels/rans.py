"""Symbols told by the states of rANS: each takes about as many bits as its frequency says, parts of bits too.

A state is a number of 32 bits, 2**16 at first. To write a symbol with the share f of 2**b, which starts at s (the sum
of the shares of all symbols before it), a state x of f * 2**(32 - b) or more is first shifted down by 16 bits, which
are written out as a word; then it becomes (x // f) * 2**b + x % f + s. Symbols are written last to first, and read
first to last.

Symbols are cut into chunks of 2**17. One of at least 1,024 has eight states, of which symbol i is told by state i % 8;
a shorter one has one. First comes for every chunk the number of its words and its states, in four bytes each; then the
words of all chunks, in two bytes each, in the order in which they are read. Where only one symbol occurs, there is
nothing.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..core import PayloadError
from .compiled import loops_or_none
from .frequencies import (
    UNKNOWN,
    Integers,
    Symbols,
    bits_by,
    checked,
    in_own_kind,
    kind_of,
    only_symbol,
    own_kind,
    same_symbols,
    share_bits,
    span,
)
from .scratch import scratch
from .threads import spread

CHUNK, STATES, CUT = 2**17, 8, 1024  # symbols of a chunk, states of one, and how many symbols it takes for these
FIRST = 2**16  # what a state is at first
LOW = 2**16 - 1
WRITTEN = np.dtype([("times", "<u8"), ("full", "<u4"), ("start", "<u2"), ("short", "<u2")])


class Shares(NamedTuple):
    bits: int
    sizes: Integers
    starts: Integers
    slots: Symbols  # whose share each part of the whole is
    read: NDArray[np.uint8]  # what the loop needs to read a symbol


def encode(symbols: Symbols, frequencies: Integers) -> NDArray[np.uint8]:
    """The symbols in as few bits as their frequencies allow for; a ValueError if one is not among them."""
    known, only = checked(frequencies), only_symbol(frequencies)
    symbols = in_own_kind(symbols, len(frequencies))
    if only is not None:
        return same_symbols(symbols, only)
    shares, written = _shares(known), _written(known)
    states = np.full((-(-len(symbols) // CHUNK), STATES), FIRST, np.uint64)
    loops = loops_or_none()
    room = 2 * CHUNK + 2
    out = scratch("coded", room * len(states), np.uint8)

    def write(start: int, stop: int) -> tuple[list[int], NDArray[np.uint8]]:
        first, last = start // CHUNK, -(-stop // CHUNK)
        if loops is None:
            return _write(symbols[start:stop], shares, states[first:last])
        to, counts = out[room * first : room * last], []
        end = len(to)
        for k in range(last - 1, first - 1, -1):
            some = symbols[k * CHUNK : min((k + 1) * CHUNK, stop)]
            loop = loops.write_rans14 if shares.bits == 14 else loops.write_rans16
            at = loop(some, written, states[k, : _states(len(some))], to[:end])
            if at < 0:
                raise ValueError(UNKNOWN)
            counts.append((end - at) // 2)
            end = at
        return counts[::-1], to[end:]

    parts = spread(write, len(symbols), CHUNK) if len(symbols) else []
    counts = [count for some, _ in parts for count in some]
    heads = np.column_stack([np.array(counts, np.uint32), states.astype(np.uint32)]).astype("<u4").reshape(-1)
    head = heads[: len(heads) - STATES + _states(len(symbols) % CHUNK)] if len(symbols) else heads
    return np.concatenate([head.view(np.uint8), *(words for _, words in parts)])


def decode(data: NDArray[np.uint8], count: int, frequencies: Integers, dtype: DTypeLike) -> tuple[NDArray[Any], int]:
    """The `count` symbols that the data begins with, and how many bytes of it they take; or a PayloadError."""
    known, only = checked(frequencies), only_symbol(frequencies)
    kind = kind_of(dtype, len(frequencies))
    if only is not None:
        return np.full(count, only, kind), 0
    shares, data = _shares(known), np.ascontiguousarray(data)
    number = -(-count // CHUNK)
    fewer = STATES - _states(count % CHUNK) if number else 0
    head = 4 * ((1 + STATES) * number - fewer)
    if head > len(data):
        raise PayloadError(f"{len(data)} bytes cannot begin with the states of {number} chunks")
    heads = np.concatenate([data[:head].view("<u4").astype(np.uint64), np.full(fewer, FIRST, np.uint64)])
    heads = heads.reshape(number, 1 + STATES)
    words, states = heads[:, 0].astype(np.int64), heads[:, 1:].copy()
    sizes = np.minimum(count - CHUNK * np.arange(number), CHUNK)
    stops = head + 2 * np.cumsum(words)
    used = int(stops[-1]) if number else 0
    if used > len(data) or (words > sizes).any() or (states < FIRST).any():
        raise PayloadError(f"{len(data)} bytes cannot be the states and words of {count} symbols")
    starts, ends = stops - 2 * words, np.empty(number, np.int64)
    out = np.empty(count, own_kind(len(frequencies)))
    loops = loops_or_none()

    def read(start: int, stop: int) -> None:
        first, last = start // CHUNK, -(-stop // CHUNK)
        if loops is None:
            ends[first:last] = _read(data, head, starts[first:last], states[first:last], shares, out[start:stop])
            return
        for k in range(first, last):
            some = out[k * CHUNK : min((k + 1) * CHUNK, stop)]
            loop = loops.read_rans14 if shares.bits == 14 else loops.read_rans16
            ends[k] = loop(data, starts[k], states[k, : _states(len(some))], shares.slots, shares.read, some)

    if number:
        spread(read, count, CHUNK)
        if (ends != stops).any() or (states != FIRST).any():
            raise PayloadError("states and words do not end where they should")
    return out.astype(kind, copy=False), used


def bits(counts: Integers, frequencies: Integers) -> int:
    """How many bits so many of each symbol take, without states and numbers of words; rounded up."""
    checked(frequencies)
    each = share_bits(len(frequencies)) - np.log2(np.maximum(frequencies, 1))
    return int(np.ceil(bits_by(each, counts, frequencies)))


def _states(size: int) -> int:
    """How many a chunk of that size has, where 0 is a whole one."""
    return 1 if 0 < size < CUT else STATES


@lru_cache(maxsize=8)
def _shares(frequencies: bytes) -> Shares:
    sizes = np.frombuffer(frequencies, np.int64)
    starts = np.cumsum(sizes) - sizes
    slots: Symbols = np.repeat(np.arange(len(sizes)), sizes).astype(own_kind(len(sizes)))
    read = np.zeros((span(len(sizes)), 2), np.uint16)
    read[: len(sizes)] = np.column_stack([sizes, starts]) & LOW
    return Shares(share_bits(len(sizes)), sizes, starts, slots, read.reshape(-1).view(np.uint8))


@lru_cache(maxsize=8)
def _written(frequencies: bytes) -> NDArray[np.uint8]:
    """What the loop needs to write a symbol, for every number that one may be."""
    bits, sizes, starts, *_ = _shares(frequencies)
    there = sizes.nonzero()[0]
    written = np.zeros(span(len(sizes)), WRITTEN)
    written["full"] = 1
    written["times"][there] = -(-(1 << 32 + bits) // sizes[there])
    written["full"][there] = sizes[there] << 32 - bits
    written["start"][there] = starts[there]
    written["short"][there] = (1 << bits) - sizes[there]
    return written.view(np.uint8)


def _write(symbols: Symbols, shares: Shares, states: NDArray[np.uint64]) -> tuple[list[int], NDArray[np.uint8]]:
    """What the loop writes, a symbol of all states of all chunks at a time."""
    if symbols.max() >= len(shares.sizes) or not shares.sizes[symbols].all():
        raise ValueError(UNKNOWN)
    sizes, starts, up = shares.sizes.astype(np.uint64), shares.starts.astype(np.uint64), np.uint64(shares.bits)
    counts, parts = [], []
    for chunks in _of_one_length(len(symbols)):
        some = symbols[chunks.symbols].reshape(chunks.number, -1)
        words = np.zeros((chunks.number, chunks.steps, chunks.states), "<u2")
        full = np.zeros(words.shape, bool)
        for i in reversed(range(chunks.steps)):
            now = some[:, i * chunks.states : (i + 1) * chunks.states]
            x, size = states[chunks.rows, : now.shape[1]], sizes[now]
            told = full[:, i, : now.shape[1]] = x >= size << np.uint64(32) - up
            words[:, i, : now.shape[1]] = x & np.uint64(LOW)
            quotients, rests = np.divmod(x >> 16 * told.astype(np.uint64), size)
            x[:] = (quotients << up) + rests + starts[now]
        counts += full.sum((1, 2)).tolist()
        parts.append(words[full].view(np.uint8))
    return counts, np.concatenate(parts)


def _read(
    data: NDArray[np.uint8], head: int, begin: Integers, states: NDArray[np.uint64], shares: Shares, out: NDArray[Any]
) -> Integers:
    """What the loop reads, a symbol of all states of all chunks at a time, and where the words end."""
    sizes, starts, down = shares.sizes.astype(np.uint64), shares.starts.astype(np.uint64), np.uint64(shares.bits)
    words = np.append(data[head : len(data) - (len(data) - head) % 2].view("<u2").astype(np.uint64), np.uint64(0))
    ends = (begin - head) // 2
    for chunks in _of_one_length(len(out)):
        some, at = out[chunks.symbols].reshape(chunks.number, -1), ends[chunks.rows]
        for i in range(chunks.steps):
            now = some[:, i * chunks.states : (i + 1) * chunks.states]
            x = states[chunks.rows, : now.shape[1]]
            slots = x & np.uint64((1 << shares.bits) - 1)
            now[:] = shares.slots[slots]
            x[:] = sizes[now] * (x >> down) + slots - starts[now]
            few = x < FIRST
            places = at[:, None] + np.cumsum(few, 1) - few
            np.copyto(x, x << np.uint64(16) | words[np.minimum(places, len(words) - 1)], where=few)
            at += few.sum(1)
    return head + 2 * ends


class Chunks(NamedTuple):
    number: int
    states: int
    steps: int
    symbols: slice
    rows: slice


def _of_one_length(size: int) -> list[Chunks]:
    """All whole chunks, and what is left."""
    whole, rest = divmod(size, CHUNK)
    chunks = [Chunks(whole, STATES, CHUNK // STATES, slice(whole * CHUNK), slice(whole))] if whole else []
    if rest:
        last = slice(whole * CHUNK, None), slice(whole, None)
        chunks.append(Chunks(1, _states(rest), -(-rest // _states(rest)), *last))
    return chunks
