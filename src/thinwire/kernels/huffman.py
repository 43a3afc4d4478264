"""Huffman coding: the more frequent a symbol, the fewer bits, but at least one.

Codes are canonical, so they follow from the frequencies: ordered by length and then by symbol, each is the one before
plus one, with zeros appended if it is longer. They are written highest bit first, into bytes lowest bit first.

Symbols are split into chunks of 2**16, and a chunk of at least 1,024 into quarters, all but the last of the same
length, rounded up. Each part is a stream of full bytes. The lengths of all streams come first, in two bytes each, then
the streams. If only one symbol has a frequency, the code is empty.
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..core import PayloadError
from .compiled import loops_or_none
from .frequencies import (
    NARROW,
    UNKNOWN,
    Integers,
    Symbols,
    as_symbols,
    checked,
    decoded_type,
    encode_constant,
    lengths,
    only_symbol,
    span,
    symbol_type,
    total_bits,
)
from .scratch import scratch
from .threads import spread

CHUNK, PARTS, CUT = 2**16, 4, 1024  # symbols per chunk, streams per chunk, and the least symbols of a split chunk
SPARE = 16  # bytes after a stream that a loop may write to
MISSING = np.uint64(1 << 16)  # marks a symbol without a code


class Code(NamedTuple):
    limit: int  # of the code length, in bits
    lengths: Integers
    reversed: NDArray[np.uint64]  # the codes, with their bits in reverse order
    single: NDArray[np.uint32]  # by the next bits: code length, bytes of the symbol (<< 8), and the symbol (<< 16)
    double: NDArray[np.uint32]  # the same for two codes, where both fit into these bits and symbols are bytes


def encode(symbols: Symbols, frequencies: Integers) -> NDArray[np.uint8]:
    """The Huffman code of the symbols; raises ValueError if a symbol has no frequency."""
    key, only = checked(frequencies), only_symbol(frequencies)
    symbols = as_symbols(symbols, len(frequencies))
    if only is not None:
        return encode_constant(symbols, only)
    code, table = _code(key), _write_table(key)
    counts = _counts(len(symbols))
    sizes = np.empty(len(counts), np.uint16)
    room = -(-int(counts.max(initial=0)) * code.limit // 8) + SPARE
    loops = loops_or_none()
    out = scratch("coded", PARTS * room * -(-len(symbols) // CHUNK), np.uint8)

    def write(start: int, stop: int) -> NDArray[np.uint8]:
        some, streams = symbols[start:stop], _streams(start, stop)
        if loops is None:
            return _write(some, counts[streams], table, code.limit, sizes[streams])
        first, last = (PARTS * room * -(-edge // CHUNK) for edge in (start, stop))
        to = out[first:last]
        loop = loops.write_huffman12 if code.limit == 12 else loops.write_huffman16
        used = loop(some, counts[streams], table, room, to, sizes[streams])
        if used < 0:
            raise ValueError(UNKNOWN)
        return to[1 : 1 + used]

    parts = spread(write, len(symbols), CHUNK) if len(symbols) else []
    return np.concatenate([sizes.astype("<u2").view(np.uint8), *parts])


def decode(data: NDArray[np.uint8], count: int, frequencies: Integers, dtype: DTypeLike) -> tuple[NDArray[Any], int]:
    """The `count` symbols at the start of the data, and the number of bytes they take; raises PayloadError."""
    key, only = checked(frequencies), only_symbol(frequencies)
    kind = decoded_type(dtype, len(frequencies))
    if only is not None:
        return np.full(count, only, kind), 0
    code, data = _code(key), np.ascontiguousarray(data)
    number = PARTS * (count // CHUNK) + (0 if count % CHUNK == 0 else 1 if count % CHUNK < CUT else PARTS)
    if 2 * number > len(data):
        raise PayloadError(f"{len(data)} bytes are too short for the lengths of {number} streams")
    counts, sizes = _counts(count), data[: 2 * number].view("<u2").astype(np.int64)
    shortest, longest = int(code.lengths[code.lengths > 0].min()), int(code.lengths.max())
    if (sizes < -(-counts * shortest // 8)).any() or (sizes > -(-counts * longest // 8)).any():
        raise PayloadError(f"streams of {count} symbols cannot have the declared lengths")
    stops = 2 * number + np.cumsum(sizes)
    used = int(stops[-1]) if number else 0
    if used > len(data):
        raise PayloadError(f"{len(data)} bytes cannot hold streams of {used}")
    starts, ends = stops - sizes, np.empty(number, np.int64)
    out = np.empty(count, symbol_type(len(frequencies)))
    bytes_of, loops = counts * out.itemsize, loops_or_none()

    def read(start: int, stop: int) -> None:
        streams = _streams(start, stop)
        if loops is None:
            ends[streams] = _read(data, starts[streams], counts[streams], code, out[start:stop])
        else:
            loop = loops.read_huffman12 if code.limit == 12 else loops.read_huffman16
            to = out[start:stop].view(np.uint8)
            loop(data, starts[streams], bytes_of[streams], code.double, code.single, to, ends[streams])

    if number:
        spread(read, count, CHUNK)
        # Every stream must end at its declared length, with zeros in the rest of its last byte.
        if (-(-ends // 8) != stops).any() or (data[stops - 1] >> (ends - 1 & 7) >> 1).any():
            raise PayloadError("streams are longer or shorter than their symbols")
    return out.astype(kind, copy=False), used


def bits(counts: Integers, frequencies: Integers) -> int:
    """The bits that `counts` of each symbol take, without stream lengths and padding."""
    checked(frequencies)
    return int(total_bits(lengths(frequencies, _limit(len(frequencies))).astype(np.int64), counts, frequencies))


def _limit(alphabet: int) -> int:
    return 12 if alphabet <= NARROW else 16


def _counts(count: int) -> Integers:
    """The number of symbols in each stream."""
    rest = count % CHUNK
    quarter = -(-rest // PARTS)
    last = [quarter] * (PARTS - 1) + [rest - quarter * (PARTS - 1)] if rest >= CUT else [rest] if rest else []
    return np.concatenate([np.full(PARTS * (count // CHUNK), CHUNK // PARTS), np.array(last, np.int64)])


def _streams(start: int, stop: int) -> slice:
    """The streams of the chunks from `start` to `stop`."""
    return slice(PARTS * (start // CHUNK), PARTS * -(-stop // CHUNK))


@lru_cache(maxsize=8)
def _code(frequencies: bytes) -> Code:
    counts = np.frombuffer(frequencies, np.int64)
    limit = _limit(len(counts))
    long = lengths(counts, limit).astype(np.int64)
    present = long.nonzero()[0]
    order = present[np.argsort(long[present], kind="stable")]
    room = 1 << limit - long[order]  # number of codes of `limit` bits with this prefix
    if int(room.sum()) != 1 << limit:
        return Code(limit, long, np.zeros(len(counts), np.uint64), *[np.zeros(0, np.uint32)] * 2)  # a single symbol
    reversed_bits = _reversed(limit)
    codes = np.zeros(len(counts), np.uint64)
    codes[order] = reversed_bits[np.cumsum(room) - room]
    size = symbol_type(len(counts))(0).itemsize
    single = np.repeat((order << 16 | size << 8 | long[order]).astype(np.uint32), room)[reversed_bits]
    return Code(limit, long, codes, single, _doubled(single, limit) if size == 1 else single)


def _doubled(single: NDArray[np.uint32], limit: int) -> NDArray[np.uint32]:
    """The table with a second symbol, where the remaining bits contain its code."""
    long = single & 0xFF
    then = single[np.arange(len(single)) >> long]
    both = long + (then & 0xFF)
    return np.where(both <= limit, then >> 16 << 24 | single & 0xFF0000 | 2 << 8 | both, single).astype(np.uint32)


@lru_cache(maxsize=8)
def _write_table(frequencies: bytes) -> NDArray[np.uint64]:
    """For every value of the symbol type: the code in the top bits, and its length in the lowest."""
    code = _code(frequencies)
    table = np.full(span(len(code.lengths)), MISSING)
    present = code.lengths.nonzero()[0]
    long = code.lengths[present].astype(np.uint64)
    table[present] = code.reversed[present] << np.uint64(64) - long | long
    return table


@cache
def _reversed(bits: int) -> Integers:
    """Every number of `bits` bits, with its bits in reverse order."""
    reversed_bits = np.zeros(1, np.int64)
    for _ in range(bits):
        reversed_bits = np.concatenate([reversed_bits << 1, reversed_bits << 1 | 1])
    return reversed_bits


def _write(
    symbols: Symbols, counts: Integers, table: NDArray[np.uint64], limit: int, sizes: NDArray[np.uint16]
) -> NDArray[np.uint8]:
    """The numpy twin of the loop: writes one bit of all codes of some streams at a time."""
    parts, first = [np.empty(0, np.uint8)], 0
    for k in range(0, len(counts), PARTS):
        last = first + int(counts[k : k + PARTS].sum())
        codes = table[symbols[first:last]]
        if (codes & MISSING).any():
            raise ValueError(UNKNOWN)
        long = codes & np.uint64(0xFF)
        values, long = codes >> np.uint64(64) - long, long.astype(np.int64)
        ends, stops = np.cumsum(long), np.cumsum(counts[k : k + PARTS])
        nbytes = -(-np.diff(ends[stops - 1], prepend=0) // 8)
        sizes[k : k + PARTS] = nbytes
        shifts = 8 * (np.cumsum(nbytes) - nbytes) - np.concatenate([[0], ends[stops[:-1] - 1]])
        positions = ends - long + np.repeat(shifts, counts[k : k + PARTS])
        out = np.zeros(8 * int(nbytes.sum()), np.uint8)
        for bit in range(limit):
            present = long > bit
            out[positions[present] + bit] = values[present] >> np.uint64(bit) & np.uint64(1)
        parts.append(np.packbits(out, bitorder="little"))
        first = last
    return np.concatenate(parts)


def _read(data: NDArray[np.uint8], starts: Integers, counts: Integers, code: Code, out: NDArray[Any]) -> Integers:
    """The numpy twin of the loop: reads one symbol of all streams at a time. Returns where the streams end."""
    padded = np.concatenate([data, np.zeros(3, np.uint8)]).astype(np.uint32)
    words = padded[:-2] | padded[1:-1] << 8 | padded[2:] << 16  # 24 bits from each byte on, and a word past the end
    positions, mask, most, fewest = 8 * starts, (1 << code.limit) - 1, int(counts.max()), int(counts.min())
    found = np.empty((most, len(counts)), np.uint32)
    for i in range(most):
        at = np.minimum(positions >> 3, len(data))
        found[i] = code.single[words[at] >> (positions & 7) & mask]
        steps = found[i] & 0xFF
        positions += steps if i < fewest else steps * (i < counts)
    np.copyto(out, np.concatenate([found[:n, k] >> 16 for k, n in enumerate(counts)]), casting="unsafe")
    return positions
