"""A row of symbols in pieces of equal length; the last may be shorter."""

import numpy as np
from numpy.typing import NDArray

from .compiled import loops_or_none
from .frequencies import Integers, Symbols
from .threads import spread


def sum_pieces(symbols: Symbols, numbers: Integers, size: int) -> Integers:
    """For each piece, the sum of the numbers of its symbols."""
    sums = np.zeros(-(-len(symbols) // size), np.int64)
    loops = loops_or_none()
    if loops is None:
        np.add.at(sums, np.arange(len(symbols)) // size, numbers[symbols])
    else:

        def sum_stretch(start: int, stop: int) -> None:
            loops.sum_pieces(symbols[start:stop], numbers, size, sums[start // size : -(-stop // size)])

        spread(sum_stretch, len(symbols), size)
    return sums


def gathered(symbols: Symbols, size: int, which: NDArray[np.bool_]) -> Symbols:
    """The symbols of the chosen pieces, concatenated."""
    whole = len(symbols) // size
    rows = symbols[: whole * size].reshape(whole, size)[which[:whole]].reshape(-1)
    return np.concatenate([rows, symbols[whole * size :]]) if len(which) > whole and which[-1] else rows


def scattered(part: Symbols, size: int, which: NDArray[np.bool_], symbols: Symbols) -> None:
    """Write the concatenated pieces back to their positions in `symbols`."""
    whole = len(symbols) // size
    end = int(which[:whole].sum()) * size
    symbols[: whole * size].reshape(whole, size)[which[:whole]] = part[:end].reshape(-1, size)
    if len(which) > whole and which[-1]:
        symbols[whole * size :] = part[end:]
