"""Pieces of a row of symbols, of equal length but for the last."""

import numpy as np
from numpy.typing import NDArray

from .compiled import loops_or_none
from .frequencies import Integers, Symbols
from .threads import spread


def added_up(symbols: Symbols, each: Integers, size: int) -> Integers:
    """What the symbols of each piece add up to, where each symbol stands for a number."""
    sums = np.zeros(-(-len(symbols) // size), np.int64)
    loops = loops_or_none()
    if loops is None:
        np.add.at(sums, np.arange(len(symbols)) // size, each[symbols])
    else:

        def add_up(start: int, stop: int) -> None:
            loops.add_up_pieces(symbols[start:stop], each, size, sums[start // size : -(-stop // size)])

        spread(add_up, len(symbols), size)
    return sums


def gathered(symbols: Symbols, size: int, which: NDArray[np.bool_]) -> Symbols:
    """The symbols of these pieces, one after the other."""
    whole = len(symbols) // size
    rows = symbols[: whole * size].reshape(whole, size)[which[:whole]].reshape(-1)
    return np.concatenate([rows, symbols[whole * size :]]) if len(which) > whole and which[-1] else rows


def scattered(part: Symbols, size: int, which: NDArray[np.bool_], symbols: Symbols) -> None:
    """Write them back to where they were."""
    whole = len(symbols) // size
    end = int(which[:whole].sum()) * size
    symbols[: whole * size].reshape(whole, size)[which[:whole]] = part[:end].reshape(-1, size)
    if len(which) > whole and which[-1]:
        symbols[whole * size :] = part[end:]
