"""rANS coding: each symbol takes about -log2 of its relative frequency, including fractions of bits.

A state is a number of 32 bits, 2**16 at first. To write a symbol with frequency f of 2**b, which starts at s (the sum
of the frequencies of all symbols before it), a state x of f * 2**(32 - b) or more is first shifted down by 16 bits,
which are written as a word; then it becomes (x // f) * 2**b + x % f + s. Symbols are written last to first, and read
first to last.

Symbols are split into chunks of 2**17. A chunk of at least 1,024 has eight states, of which state i % 8 codes symbol
i; a shorter chunk has one. For every chunk, the number of its words and its states come first, in four bytes each; then
the words of all chunks, in two bytes each, in the order in which they are read. If only one symbol has a frequency, the
code is empty.
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
    as_symbols,
    checked,
    decoded_type,
    encode_constant,
    only_symbol,
    share_bits,
    span,
    symbol_type,
    total_bits,
)
from .scratch import scratch
from .threads import spread

CHUNK, STATES, CUT = 2**17, 8, 1024  # symbols per chunk, states per chunk, and the least symbols for that many states
FIRST = 2**16  # the initial state
LOW = 2**16 - 1
WRITE_ENTRY = np.dtype([("times", "<u8"), ("full", "<u4"), ("start", "<u2"), ("short", "<u2")])


class Shares(NamedTuple):
    bits: int
    sizes: Integers
    starts: Integers
    slots: Symbols  # the symbol of each slot, of which a symbol has as many as its frequency
    read_table: NDArray[np.uint8]  # for the loop: frequency and start of each symbol


def encode(symbols: Symbols, frequencies: Integers) -> NDArray[np.uint8]:
    """The rANS code of the symbols; raises ValueError if a symbol has no frequency."""
    key, only = checked(frequencies), only_symbol(frequencies)
    symbols = as_symbols(symbols, len(frequencies))
    if only is not None:
        return encode_constant(symbols, only)
    shares, table = _shares(key), _write_table(key)
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
            at = loop(some, table, states[k, : _states(len(some))], to[:end])
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
    """The `count` symbols at the start of the data, and the number of bytes they take; raises PayloadError."""
    key, only = checked(frequencies), only_symbol(frequencies)
    kind = decoded_type(dtype, len(frequencies))
    if only is not None:
        return np.full(count, only, kind), 0
    shares, data = _shares(key), np.ascontiguousarray(data)
    number = -(-count // CHUNK)
    fewer = STATES - _states(count % CHUNK) if number else 0
    head = 4 * ((1 + STATES) * number - fewer)
    if head > len(data):
        raise PayloadError(f"{len(data)} bytes are too short for the states of {number} chunks")
    heads = np.concatenate([data[:head].view("<u4").astype(np.uint64), np.full(fewer, FIRST, np.uint64)])
    heads = heads.reshape(number, 1 + STATES)
    words, states = heads[:, 0].astype(np.int64), heads[:, 1:].copy()
    sizes = np.minimum(count - CHUNK * np.arange(number), CHUNK)
    stops = head + 2 * np.cumsum(words)
    used = int(stops[-1]) if number else 0
    if used > len(data) or (words > sizes).any() or (states < FIRST).any():
        raise PayloadError(f"{len(data)} bytes cannot be the states and words of {count} symbols")
    starts, ends = stops - 2 * words, np.empty(number, np.int64)
    out = np.empty(count, symbol_type(len(frequencies)))
    loops = loops_or_none()

    def read(start: int, stop: int) -> None:
        first, last = start // CHUNK, -(-stop // CHUNK)
        if loops is None:
            ends[first:last] = _read(data, head, starts[first:last], states[first:last], shares, out[start:stop])
            return
        for k in range(first, last):
            some = out[k * CHUNK : min((k + 1) * CHUNK, stop)]
            loop = loops.read_rans14 if shares.bits == 14 else loops.read_rans16
            ends[k] = loop(data, starts[k], states[k, : _states(len(some))], shares.slots, shares.read_table, some)

    if number:
        spread(read, count, CHUNK)
        if (ends != stops).any() or (states != FIRST).any():
            raise PayloadError("states and words do not end where they should")
    return out.astype(kind, copy=False), used


def bits(counts: Integers, frequencies: Integers) -> int:
    """The bits that `counts` of each symbol take, without states and numbers of words; rounded up."""
    checked(frequencies)
    each = share_bits(len(frequencies)) - np.log2(np.maximum(frequencies, 1))
    return int(np.ceil(total_bits(each, counts, frequencies)))


def _states(size: int) -> int:
    """The number of states of a chunk of this size, where 0 means a full chunk."""
    return 1 if 0 < size < CUT else STATES


@lru_cache(maxsize=8)
def _shares(frequencies: bytes) -> Shares:
    sizes = np.frombuffer(frequencies, np.int64)
    starts = np.cumsum(sizes) - sizes
    slots: Symbols = np.repeat(np.arange(len(sizes)), sizes).astype(symbol_type(len(sizes)))
    read_table = np.zeros((span(len(sizes)), 2), np.uint16)
    read_table[: len(sizes)] = np.column_stack([sizes, starts]) & LOW
    return Shares(share_bits(len(sizes)), sizes, starts, slots, read_table.reshape(-1).view(np.uint8))


@lru_cache(maxsize=8)
def _write_table(frequencies: bytes) -> NDArray[np.uint8]:
    """What the loop needs to write a symbol, for every value of the symbol type."""
    bits, sizes, starts, *_ = _shares(frequencies)
    present = sizes.nonzero()[0]
    table = np.zeros(span(len(sizes)), WRITE_ENTRY)
    table["full"] = 1
    table["times"][present] = -(-(1 << 32 + bits) // sizes[present])
    table["full"][present] = sizes[present] << 32 - bits
    table["start"][present] = starts[present]
    table["short"][present] = (1 << bits) - sizes[present]
    return table.view(np.uint8)


def _write(symbols: Symbols, shares: Shares, states: NDArray[np.uint64]) -> tuple[list[int], NDArray[np.uint8]]:
    """The numpy twin of the loop: writes one symbol of all states of all chunks at a time."""
    if symbols.max() >= len(shares.sizes) or not shares.sizes[symbols].all():
        raise ValueError(UNKNOWN)
    sizes, starts, up = shares.sizes.astype(np.uint64), shares.starts.astype(np.uint64), np.uint64(shares.bits)
    counts, parts = [], []
    for chunks in _by_length(len(symbols)):
        some = symbols[chunks.symbols].reshape(chunks.number, -1)
        words = np.zeros((chunks.number, chunks.steps, chunks.states), "<u2")
        full = np.zeros(words.shape, bool)
        for i in reversed(range(chunks.steps)):
            now = some[:, i * chunks.states : (i + 1) * chunks.states]
            x, size = states[chunks.rows, : now.shape[1]], sizes[now]
            spill = full[:, i, : now.shape[1]] = x >= size << np.uint64(32) - up
            words[:, i, : now.shape[1]] = x & np.uint64(LOW)
            quotients, rests = np.divmod(x >> 16 * spill.astype(np.uint64), size)
            x[:] = (quotients << up) + rests + starts[now]
        counts += full.sum((1, 2)).tolist()
        parts.append(words[full].view(np.uint8))
    return counts, np.concatenate(parts)


def _read(
    data: NDArray[np.uint8], head: int, begin: Integers, states: NDArray[np.uint64], shares: Shares, out: NDArray[Any]
) -> Integers:
    """The numpy twin of the loop: reads one symbol of all states of all chunks at a time. Returns where words end."""
    sizes, starts, down = shares.sizes.astype(np.uint64), shares.starts.astype(np.uint64), np.uint64(shares.bits)
    words = np.append(data[head : len(data) - (len(data) - head) % 2].view("<u2").astype(np.uint64), np.uint64(0))
    ends = (begin - head) // 2
    for chunks in _by_length(len(out)):
        some, at = out[chunks.symbols].reshape(chunks.number, -1), ends[chunks.rows]
        for i in range(chunks.steps):
            now = some[:, i * chunks.states : (i + 1) * chunks.states]
            x = states[chunks.rows, : now.shape[1]]
            slots = x & np.uint64((1 << shares.bits) - 1)
            now[:] = shares.slots[slots]
            x[:] = sizes[now] * (x >> down) + slots - starts[now]
            refill = x < FIRST
            indices = at[:, None] + np.cumsum(refill, 1) - refill
            np.copyto(x, x << np.uint64(16) | words[np.minimum(indices, len(words) - 1)], where=refill)
            at += refill.sum(1)
    return head + 2 * ends


class Chunks(NamedTuple):
    number: int
    states: int
    steps: int
    symbols: slice
    rows: slice


def _by_length(size: int) -> list[Chunks]:
    """All full chunks, and the remaining one."""
    full, rest = divmod(size, CHUNK)
    chunks = [Chunks(full, STATES, CHUNK // STATES, slice(full * CHUNK), slice(full))] if full else []
    if rest:
        last = slice(full * CHUNK, None), slice(full, None)
        chunks.append(Chunks(1, _states(rest), -(-rest // _states(rest)), *last))
    return chunks
