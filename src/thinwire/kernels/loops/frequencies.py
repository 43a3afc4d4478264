"""Counts of symbols; the twin is in kernels/frequencies.py."""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Symbols = NDArray[np.uint8 | np.uint16]
Counts = NDArray[np.int64]


@compiled()
def count_symbols(symbols: Symbols, a: Counts, b: Counts, c: Counts, d: Counts) -> None:
    """Count symbols into four rows, which the caller adds unless they are the same.

    Consecutive symbols use different rows, as incrementing a count that was just incremented stalls.
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
