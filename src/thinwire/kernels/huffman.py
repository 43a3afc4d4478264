"""Symbols in Huffman's code: the more frequent, the fewer bits, but whole ones.

Codes are canonical, so the frequencies tell them: ordered by length and then by symbol, each is the one before plus
one, with zeros behind it if it is longer. They are written highest bit first, into bytes lowest bit first.

Symbols are cut into chunks of 2**16, and a chunk of at least 1,024 into quarters, all but the last of the same length,
rounded up. Each part is a stream of whole bytes. First come the lengths of all streams, in two bytes each, then they.
Where only one symbol occurs, there is nothing.
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
    bits_by,
    checked,
    in_own_kind,
    kind_of,
    lengths,
    only_symbol,
    own_kind,
    same_symbols,
    span,
)
from .scratch import scratch
from .threads import spread

CHUNK, PARTS, CUT = 2**16, 4, 1024  # symbols of a chunk, streams of one, and how many symbols it takes to be cut
SPARE = 16  # bytes behind a stream that a loop may write to
MISSING = np.uint64(1 << 16)  # marks what has no code


class Code(NamedTuple):
    limit: int  # bits of the longest code there may be
    lengths: Integers
    reversed: NDArray[np.uint64]  # the codes, their highest bit lowest
    single: NDArray[np.uint32]  # by the next bits: the length of a code, the bytes of its symbol (<< 8), and it (<< 16)
    look: NDArray[np.uint32]  # the same, but of two codes where both are told by these bits and their symbols are bytes


def encode(symbols: Symbols, frequencies: Integers) -> NDArray[np.uint8]:
    """The symbols in as few bits as their frequencies allow for; a ValueError if one is not among them."""
    known, only = checked(frequencies), only_symbol(frequencies)
    symbols = in_own_kind(symbols, len(frequencies))
    if only is not None:
        return same_symbols(symbols, only)
    code, written = _code(known), _written(known)
    counts = _counts(len(symbols))
    sizes = np.empty(len(counts), np.uint16)
    room = -(-int(counts.max(initial=0)) * code.limit // 8) + SPARE
    loops = loops_or_none()
    out = scratch("coded", PARTS * room * -(-len(symbols) // CHUNK), np.uint8)

    def write(start: int, stop: int) -> NDArray[np.uint8]:
        some, streams = symbols[start:stop], _streams(start, stop)
        if loops is None:
            return _write(some, counts[streams], written, code.limit, sizes[streams])
        first, last = (PARTS * room * -(-place // CHUNK) for place in (start, stop))
        to = out[first:last]
        loop = loops.write_huffman12 if code.limit == 12 else loops.write_huffman16
        used = loop(some, counts[streams], written, room, to, sizes[streams])
        if used < 0:
            raise ValueError(UNKNOWN)
        return to[1 : 1 + used]

    parts = spread(write, len(symbols), CHUNK) if len(symbols) else []
    return np.concatenate([sizes.astype("<u2").view(np.uint8), *parts])


def decode(data: NDArray[np.uint8], count: int, frequencies: Integers, dtype: DTypeLike) -> tuple[NDArray[Any], int]:
    """The `count` symbols that the data begins with, and how many bytes of it they take; or a PayloadError."""
    known, only = checked(frequencies), only_symbol(frequencies)
    kind = kind_of(dtype, len(frequencies))
    if only is not None:
        return np.full(count, only, kind), 0
    code, data = _code(known), np.ascontiguousarray(data)
    number = PARTS * (count // CHUNK) + (0 if count % CHUNK == 0 else 1 if count % CHUNK < CUT else PARTS)
    if 2 * number > len(data):
        raise PayloadError(f"{len(data)} bytes cannot begin with the lengths of {number} streams")
    counts, sizes = _counts(count), data[: 2 * number].view("<u2").astype(np.int64)
    shortest, longest = int(code.lengths[code.lengths > 0].min()), int(code.lengths.max())
    if (sizes < -(-counts * shortest // 8)).any() or (sizes > -(-counts * longest // 8)).any():
        raise PayloadError(f"streams of {count} symbols cannot be as long as they are said to be")
    stops = 2 * number + np.cumsum(sizes)
    used = int(stops[-1]) if number else 0
    if used > len(data):
        raise PayloadError(f"{len(data)} bytes cannot hold streams of {used}")
    starts, ends = stops - sizes, np.empty(number, np.int64)
    out = np.empty(count, own_kind(len(frequencies)))
    bytes_of, loops = counts * out.itemsize, loops_or_none()

    def read(start: int, stop: int) -> None:
        of = _streams(start, stop)
        if loops is None:
            ends[of] = _read(data, starts[of], counts[of], code, out[start:stop])
        else:
            loop = loops.read_huffman12 if code.limit == 12 else loops.read_huffman16
            loop(data, starts[of], bytes_of[of], code.look, code.single, out[start:stop].view(np.uint8), ends[of])

    if number:
        spread(read, count, CHUNK)
        # A stream ends where it should, with nothing in the rest of its last byte.
        if (-(-ends // 8) != stops).any() or (data[stops - 1] >> (ends - 1 & 7) >> 1).any():
            raise PayloadError("streams are longer or shorter than what is in them")
    return out.astype(kind, copy=False), used


def bits(counts: Integers, frequencies: Integers) -> int:
    """How many bits so many of each symbol take, without the lengths of streams and what fills their last bytes."""
    checked(frequencies)
    return int(bits_by(lengths(frequencies, _limit(len(frequencies))).astype(np.int64), counts, frequencies))


def _limit(alphabet: int) -> int:
    return 12 if alphabet <= NARROW else 16


def _counts(count: int) -> Integers:
    """How many symbols are in each stream."""
    rest = count % CHUNK
    quarter = -(-rest // PARTS)
    last = [quarter] * (PARTS - 1) + [rest - quarter * (PARTS - 1)] if rest >= CUT else [rest] if rest else []
    return np.concatenate([np.full(PARTS * (count // CHUNK), CHUNK // PARTS), np.array(last, np.int64)])


def _streams(start: int, stop: int) -> slice:
    """Those of the chunks that begin there."""
    return slice(PARTS * (start // CHUNK), PARTS * -(-stop // CHUNK))


@lru_cache(maxsize=8)
def _code(frequencies: bytes) -> Code:
    given = np.frombuffer(frequencies, np.int64)
    limit = _limit(len(given))
    long = lengths(given, limit).astype(np.int64)
    there = long.nonzero()[0]
    order = there[np.argsort(long[there], kind="stable")]
    room = 1 << limit - long[order]  # how many of the longest codes would begin like it
    if int(room.sum()) != 1 << limit:
        return Code(limit, long, np.zeros(len(given), np.uint64), *[np.zeros(0, np.uint32)] * 2)  # only one symbol
    turned = _turned(limit)
    codes = np.zeros(len(given), np.uint64)
    codes[order] = turned[np.cumsum(room) - room]
    size = own_kind(len(given))(0).itemsize
    single = np.repeat((order << 16 | size << 8 | long[order]).astype(np.uint32), room)[turned]
    return Code(limit, long, codes, single, _doubled(single, limit) if size == 1 else single)


def _doubled(single: NDArray[np.uint32], limit: int) -> NDArray[np.uint32]:
    """With a second symbol, where bits that are left tell one."""
    long = single & 0xFF
    then = single[np.arange(len(single)) >> long]
    both = long + (then & 0xFF)
    return np.where(both <= limit, then >> 16 << 24 | single & 0xFF0000 | 2 << 8 | both, single).astype(np.uint32)


@lru_cache(maxsize=8)
def _written(frequencies: bytes) -> NDArray[np.uint64]:
    """For every number that a symbol may be: its code at the top, and the code's length at the bottom."""
    code = _code(frequencies)
    written = np.full(span(len(code.lengths)), MISSING)
    there = code.lengths.nonzero()[0]
    long = code.lengths[there].astype(np.uint64)
    written[there] = code.reversed[there] << np.uint64(64) - long | long
    return written


@cache
def _turned(bits: int) -> Integers:
    """Every number of so many bits, with its bits in the opposite order."""
    turned = np.zeros(1, np.int64)
    for _ in range(bits):
        turned = np.concatenate([turned << 1, turned << 1 | 1])
    return turned


def _write(
    symbols: Symbols, counts: Integers, written: NDArray[np.uint64], limit: int, sizes: NDArray[np.uint16]
) -> NDArray[np.uint8]:
    """What the loop writes, bit by bit of all codes of some streams."""
    parts, first = [np.empty(0, np.uint8)], 0
    for k in range(0, len(counts), PARTS):
        last = first + int(counts[k : k + PARTS].sum())
        codes = written[symbols[first:last]]
        if (codes & MISSING).any():
            raise ValueError(UNKNOWN)
        long = codes & np.uint64(0xFF)
        values, long = codes >> np.uint64(64) - long, long.astype(np.int64)
        ends, stops = np.cumsum(long), np.cumsum(counts[k : k + PARTS])
        whole = -(-np.diff(ends[stops - 1], prepend=0) // 8)
        sizes[k : k + PARTS] = whole
        moved = 8 * (np.cumsum(whole) - whole) - np.concatenate([[0], ends[stops[:-1] - 1]])
        places = ends - long + np.repeat(moved, counts[k : k + PARTS])
        out = np.zeros(8 * int(whole.sum()), np.uint8)
        for bit in range(limit):
            there = long > bit
            out[places[there] + bit] = values[there] >> np.uint64(bit) & np.uint64(1)
        parts.append(np.packbits(out, bitorder="little"))
        first = last
    return np.concatenate(parts)


def _read(data: NDArray[np.uint8], starts: Integers, counts: Integers, code: Code, out: NDArray[Any]) -> Integers:
    """What the loop reads, a symbol of all streams at a time, and where they end."""
    padded = np.concatenate([data, np.zeros(3, np.uint8)]).astype(np.uint32)
    words = padded[:-2] | padded[1:-1] << 8 | padded[2:] << 16  # from every byte on, and one beyond the last
    places, mask, most, fewest = 8 * starts, (1 << code.limit) - 1, int(counts.max()), int(counts.min())
    found = np.empty((most, len(counts)), np.uint32)
    for i in range(most):
        at = np.minimum(places >> 3, len(data))
        found[i] = code.single[words[at] >> (places & 7) & mask]
        steps = found[i] & 0xFF
        places += steps if i < fewest else steps * (i < counts)
    np.copyto(out, np.concatenate([found[:n, k] >> 16 for k, n in enumerate(counts)]), casting="unsafe")
    return places
