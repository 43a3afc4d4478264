"""How often symbols are there; the twin is in frequencies.py."""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Symbols = NDArray[np.uint8 | np.uint16]
Counts = NDArray[np.int64]


@compiled()
def count_symbols(symbols: Symbols, a: Counts, b: Counts, c: Counts, d: Counts) -> None:
    """Add how often each is there, in rows that are to be added if they are not the same.

    Symbols take turns with the rows, as counting up the same number again has to wait for the last time.
    """
    whole = np.uint64(len(symbols) - len(symbols) % 4)
    i = np.uint64(0)
    while i < whole:
        a[symbols[i]] += 1
        b[symbols[i + np.uint64(1)]] += 1
        c[symbols[i + np.uint64(2)]] += 1
        d[symbols[i + np.uint64(3)]] += 1
        i += np.uint64(4)
    for j in range(whole, np.uint64(len(symbols))):
        a[symbols[j]] += 1


@compiled()
def add_up_pieces(symbols: Symbols, each: Counts, size: int, out: Counts) -> None:
    """What the symbols of each piece, of so many, add up to; the last piece may be short."""
    for k in range(len(out)):
        piece = symbols[k * size : (k + 1) * size]
        total = np.int64(0)
        for i in range(len(piece)):
            total += each[piece[i]]
        out[k] = total
