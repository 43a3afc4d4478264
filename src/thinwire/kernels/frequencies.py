"""Counts of symbols, and their frequencies: counts scaled to a fixed power of two, as the coders need them.

The receiver computes the frequencies and code lengths again. So only integers are used, and the results do not depend
on the machine.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .compiled import loops_or_none
from .threads import spread

Integers = NDArray[np.int64]
Symbols = NDArray[np.uint8 | np.uint16]

UNKNOWN = "a symbol has no frequency"
NARROW = 256  # symbols, at most, of an alphabet whose tables stay in the L1 cache
ROWS = 4  # of counts, used in turn; one for 16-bit symbols, where clearing four costs more


def share_bits(alphabet: int) -> int:
    """The frequencies of an alphabet sum to 2 to this power."""
    return 14 if alphabet <= NARROW else 16


def span(alphabet: int) -> int:
    """The number of values of the type of symbols: a table of this length needs no bounds check."""
    return NARROW if alphabet <= NARROW else 2**16


def count_symbols(symbols: Symbols, alphabet: int) -> Integers:
    """The number of occurrences of each symbol of the alphabet."""
    symbols = np.ascontiguousarray(symbols)
    loops = loops_or_none()
    kinds = 1 << 8 * symbols.itemsize
    rows = ROWS if kinds <= NARROW else 1

    def count(start: int, stop: int) -> Integers:
        if loops is None:
            return np.bincount(symbols[start:stop], minlength=kinds).astype(np.int64, copy=False)
        counts = np.zeros((rows, kinds), np.int64)
        loops.count_symbols(symbols[start:stop], *(counts[row % rows] for row in range(ROWS)))
        return np.asarray(counts.sum(0))

    counts = sum(spread(count, len(symbols)), np.zeros(kinds, np.int64))
    if counts[alphabet:].any():
        raise ValueError(f"symbol {int(counts.nonzero()[0][-1])} is beyond an alphabet of {alphabet}")
    return np.pad(counts, (0, max(0, alphabet - kinds)))[:alphabet]


def scaled(weights: Integers) -> Integers:
    """Frequencies that sum to a power of two, as near to proportional to the weights as possible; 0 only for weight 0.

    A symbol whose share is less than 1 gets 1. The others get the integer part of their share of the rest, and those
    with the largest remainders get 1 more; of equal remainders, the first.
    """
    total = 1 << share_bits(len(weights))
    present = weights.nonzero()[0]
    if not len(present):
        raise ValueError("all weights are 0, so there are no frequencies")
    order = present[np.argsort(weights[present], kind="stable")]
    sizes = weights[order]
    # Each symbol raised to 1 leaves less for the others, so the next may have to be raised as well.
    remaining = sizes.sum() - np.cumsum(sizes) + sizes
    small = int(np.argmax(sizes * (total - np.arange(len(sizes))) >= remaining))
    shares = np.zeros(len(weights), np.int64)
    shares[order[:small]] = 1
    others = np.sort(order[small:])
    parts, rests = np.divmod(weights[others] * (total - small), remaining[small])
    more = np.argsort(-rests, kind="stable")[: total - small - int(parts.sum())]
    parts[more] += 1
    shares[others] = parts
    return shares


def checked(frequencies: Integers) -> bytes:
    """The frequencies as a cache key; raises ValueError if they are not valid."""
    total = 1 << share_bits(len(frequencies))
    if len(frequencies) == 0 or int(frequencies.min()) < 0 or int(frequencies.sum()) != total:
        raise ValueError(f"{len(frequencies)} frequencies must not be negative, and must sum to {total}")
    return np.ascontiguousarray(frequencies, np.int64).tobytes()


def only_symbol(frequencies: Integers) -> int | None:
    """The only symbol that occurs, if there is just one: then its code is empty."""
    most = int(frequencies.argmax())
    return most if int(frequencies[most]) == 1 << share_bits(len(frequencies)) else None


def lengths(frequencies: Integers, limit: int) -> NDArray[np.uint8]:
    """The code length of each symbol in bits: an optimal prefix code with no code longer than the limit.

    0 for symbols that do not occur, and for the only one that does. Of equally frequent symbols, earlier ones have
    codes at least as long.
    """
    return _lengths(np.ascontiguousarray(frequencies, np.int64).tobytes(), limit).copy()


@lru_cache(maxsize=16)
def _lengths(frequencies: bytes, limit: int) -> NDArray[np.uint8]:
    """Package-merge: in each of `limit` rounds, the rarest items are packaged in pairs, and merged with the symbols.

    Of the last round, the rarest 2n - 2 items are taken, the contents of their pairs from the round before, and so on.
    The code length of a symbol is the number of rounds in which it is taken.
    """
    counts = np.frombuffer(frequencies, np.int64)
    lengths_of = np.zeros(len(counts), np.uint8)
    present = counts.nonzero()[0]
    if len(present) > 1 << limit:
        raise ValueError(f"{len(present)} symbols cannot all have codes of at most {limit} bits")
    if len(present) < 2:
        return lengths_of
    order = present[np.argsort(counts[present], kind="stable")]
    single = counts[order]
    merged, rounds = single, [single[:0]]
    for _ in range(limit - 1):
        pairs = merged[:-1:2] + merged[1::2]
        merged = np.concatenate([single, pairs])
        merged.sort(kind="stable")
        rounds.append(pairs)
    take, ends = 2 * len(single) - 2, np.zeros(len(single) + 1, np.uint8)
    for pairs in reversed(rounds):
        singles = _singles_taken(single, pairs, take)
        ends[singles] += 1
        take = 2 * (take - singles)
    lengths_of[order] = np.cumsum(ends[:0:-1], dtype=np.uint8)[::-1]
    return lengths_of


def _singles_taken(single: Integers, pairs: Integers, take: int) -> int:
    """The number of singles in the `take` smallest of singles and pairs; singles come before equal pairs."""
    low, high = max(0, take - len(pairs)), min(take, len(single))
    while low < high:  # a single is taken unless enough pairs are smaller to fill the rest
        middle = (low + high) // 2
        if single[middle] <= pairs[take - middle - 1]:
            low = middle + 1
        else:
            high = middle
    return low


def encode_constant(symbols: Symbols, only: int) -> NDArray[np.uint8]:
    """The code of symbols that are all the only one with a frequency: empty."""
    if (symbols != only).any():
        raise ValueError(UNKNOWN)
    return np.empty(0, np.uint8)


def symbol_type(alphabet: int) -> type[np.uint8] | type[np.uint16]:
    """The type of symbols in loops."""
    return np.uint8 if alphabet <= NARROW else np.uint16


def as_symbols(symbols: Symbols, alphabet: int) -> Symbols:
    """The symbols as loops take them: contiguous, in the alphabet's type."""
    kind = symbol_type(alphabet)
    if symbols.itemsize > kind(0).itemsize and (symbols >= alphabet).any():
        raise ValueError(UNKNOWN)
    return np.ascontiguousarray(symbols, kind)


def decoded_type(dtype: DTypeLike, alphabet: int) -> np.dtype[Any]:
    """The requested type of decoded symbols; raises ValueError if the alphabet does not fit."""
    kind = np.dtype(dtype)
    if kind not in (np.uint8, np.uint16) or kind.itemsize < symbol_type(alphabet)(0).itemsize:
        raise ValueError(f"an alphabet of {alphabet} symbols cannot be decoded as {kind}")
    return kind


def total_bits(each: NDArray[Any], counts: Integers, frequencies: Integers) -> Any:
    """The bits of `counts` symbols at `each` bits; raises ValueError if a symbol without a frequency is counted."""
    if len(counts) != len(frequencies) or counts[frequencies == 0].any():
        raise ValueError(UNKNOWN)
    return np.dot(counts, each)
