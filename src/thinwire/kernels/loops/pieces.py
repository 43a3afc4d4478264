"""Sums over pieces of a row of symbols; the twin is in kernels/pieces.py."""

import numpy as np

from .frequencies import Counts, Symbols
from .jit import compiled


@compiled()
def sum_pieces(symbols: Symbols, numbers: Counts, size: int, out: Counts) -> None:
    """For each piece of `size` symbols, the sum of the numbers of its symbols; the last piece may be shorter."""
    for k in range(len(out)):
        piece = symbols[k * size : (k + 1) * size]
        total = np.int64(0)
        for i in range(len(piece)):
            total += numbers[piece[i]]
        out[k] = total
