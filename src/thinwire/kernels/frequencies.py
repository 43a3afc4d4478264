"""How often each symbol of an alphabet occurs, in the shares that the coders work with.

Whoever decodes works the shares and the lengths of codes out anew: so they are of integers only, and do not depend on
the machine.
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
NARROW = 256  # symbols of an alphabet, at most, for tables that stay in the nearest cache
ROWS = 4  # of counts, which take turns; where there are few symbols of many kinds, to clear them costs more


def share_bits(alphabet: int) -> int:
    """All shares together are 2 to the power of that."""
    return 14 if alphabet <= NARROW else 16


def span(alphabet: int) -> int:
    """How many numbers there are of the type that symbols have, so that no index is beyond a table."""
    return NARROW if alphabet <= NARROW else 2**16


def counted(symbols: Symbols, alphabet: int) -> Integers:
    """How often each symbol of the alphabet is there."""
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
    """Shares of a power of two, as near to proportional as they can be if none that is wanted is 0.

    What would get less than 1 gets 1. Of what is left the others get the whole part of their share, and those with the
    largest remainders 1 more; of equal ones the earlier.
    """
    whole = 1 << share_bits(len(weights))
    wanted = weights.nonzero()[0]
    if not len(wanted):
        raise ValueError("without any weight there are no shares")
    order = wanted[np.argsort(weights[wanted], kind="stable")]
    sizes = weights[order]
    # Each that is lifted to 1 leaves less for the others, so the next may have to be lifted as well.
    pooled = sizes.sum() - np.cumsum(sizes) + sizes
    small = int(np.argmax(sizes * (whole - np.arange(len(sizes))) >= pooled))
    shares = np.zeros(len(weights), np.int64)
    shares[order[:small]] = 1
    others = np.sort(order[small:])
    parts, rests = np.divmod(weights[others] * (whole - small), pooled[small])
    more = np.argsort(-rests, kind="stable")[: whole - small - int(parts.sum())]
    parts[more] += 1
    shares[others] = parts
    return shares


def checked(frequencies: Integers) -> bytes:
    """The frequencies in a form to remember them by; a ValueError if they are none."""
    whole = 1 << share_bits(len(frequencies))
    if len(frequencies) == 0 or int(frequencies.min()) < 0 or int(frequencies.sum()) != whole:
        raise ValueError(f"{len(frequencies)} frequencies must not be negative, and together be {whole}")
    return np.ascontiguousarray(frequencies, np.int64).tobytes()


def only_symbol(frequencies: Integers) -> int | None:
    """The symbol that is the only one to occur, if there is such a one: then nothing need be told."""
    most = int(frequencies.argmax())
    return most if int(frequencies[most]) == 1 << share_bits(len(frequencies)) else None


def lengths(frequencies: Integers, limit: int) -> NDArray[np.uint8]:
    """How many bits the code of each symbol has, none longer than the limit, so that all together take the least.

    0 for those that do not occur, and for one that is the only one. Of equally frequent symbols the earlier are no
    shorter.
    """
    return _lengths(np.ascontiguousarray(frequencies, np.int64).tobytes(), limit).copy()


@lru_cache(maxsize=16)
def _lengths(frequencies: bytes, limit: int) -> NDArray[np.uint8]:
    """Package-merge: in each round the rarest are put together two by two, and the pairs then count as one.

    There are as many rounds as a code may have bits. Of the last, the least 2n - 2 are taken; what is in them is taken
    of the round before, and so on. A symbol's code has as many bits as there are rounds in which it is taken.
    """
    given = np.frombuffer(frequencies, np.int64)
    found = np.zeros(len(given), np.uint8)
    there = given.nonzero()[0]
    if len(there) > 1 << limit:
        raise ValueError(f"{len(there)} symbols cannot all have codes of at most {limit} bits")
    if len(there) < 2:
        return found
    order = there[np.argsort(given[there], kind="stable")]
    single = given[order]
    merged, rounds = single, [single[:0]]
    for _ in range(limit - 1):
        pairs = merged[:-1:2] + merged[1::2]
        merged = np.concatenate([single, pairs])
        merged.sort(kind="stable")
        rounds.append(pairs)
    take, ends = 2 * len(single) - 2, np.zeros(len(single) + 1, np.uint8)
    for pairs in reversed(rounds):
        singles = _singles_among(single, pairs, take)
        ends[singles] += 1
        take = 2 * (take - singles)
    found[order] = np.cumsum(ends[:0:-1], dtype=np.uint8)[::-1]
    return found


def _singles_among(single: Integers, pairs: Integers, take: int) -> int:
    """How many single ones are among the least so many of both, where they come before pairs that are equal."""
    low, high = max(0, take - len(pairs)), min(take, len(single))
    while low < high:  # one of them is taken, unless as many pairs as there is room for besides are less than it
        middle = (low + high) // 2
        if single[middle] <= pairs[take - middle - 1]:
            low = middle + 1
        else:
            high = middle
    return low


def same_symbols(symbols: Symbols, only: int) -> NDArray[np.uint8]:
    """What is to be told of symbols where only one occurs: nothing, if they are."""
    if (symbols != only).any():
        raise ValueError(UNKNOWN)
    return np.empty(0, np.uint8)


def own_kind(alphabet: int) -> type[np.uint8] | type[np.uint16]:
    """The type of symbols that loops take."""
    return np.uint8 if alphabet <= NARROW else np.uint16


def in_own_kind(symbols: Symbols, alphabet: int) -> Symbols:
    """The symbols in a row and in the type that loops take."""
    kind = own_kind(alphabet)
    if symbols.itemsize > kind(0).itemsize and (symbols >= alphabet).any():
        raise ValueError(UNKNOWN)
    return np.ascontiguousarray(symbols, kind)


def kind_of(dtype: DTypeLike, alphabet: int) -> np.dtype[Any]:
    """The type that symbols are decoded to, if they fit."""
    kind = np.dtype(dtype)
    if kind not in (np.uint8, np.uint16) or kind.itemsize < own_kind(alphabet)(0).itemsize:
        raise ValueError(f"symbols of {alphabet} kinds do not come as {kind}")
    return kind


def bits_by(each: NDArray[Any], counts: Integers, frequencies: Integers) -> Any:
    """What so many of each take together, if a symbol takes that; those that do not occur have to be absent."""
    if len(counts) != len(frequencies) or counts[frequencies == 0].any():
        raise ValueError(UNKNOWN)
    return np.dot(counts, each)
