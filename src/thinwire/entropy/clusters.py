"""Groups of similar pieces of a row: rows of a matrix differ in magnitude, and so in their symbols."""

import numpy as np
from numpy.typing import NDArray

from ..kernels.frequencies import count_symbols
from ..kernels.pieces import gathered, sum_pieces
from .coders import Symbols
from .model import Integers

PIECE = 256  # symbols
MOST, SMALLEST = 8, 2**14  # groups at most; initial symbols per group at least, as each group takes time
FINE = 2**8  # parts of a bit, in which code lengths are summed
WORTH = 0.01  # of the bits, that it must save
TABLE_BITS, TABLE_BITS_PER_KIND = 120, 3.5  # approximate size of a table


def groups(symbols: Symbols, counts: Integers) -> NDArray[np.uint8] | None:
    """The group of each piece, from the most common symbols to the rarest; None if a single group is best.

    Pieces are sorted by the bits that their symbols take with the frequencies of the whole row, and split into groups
    of equal size. Adjacent groups are merged if a shared table is shorter.
    """
    first_number = min(MOST, len(symbols) // SMALLEST)
    if first_number < 2:
        return None
    bits = np.zeros(len(counts), np.int64)
    present = counts > 0
    bits[present] = np.round(FINE * np.log2(counts.sum() / counts[present]))
    order = np.argsort(sum_pieces(symbols, bits, PIECE), kind="stable")
    labels = np.empty(len(order), np.uint8)
    labels[order] = np.arange(len(order)) * first_number // len(order)
    by_group = [count_symbols(gathered(symbols, PIECE, labels == group), len(counts)) for group in range(first_number)]

    number, new, joint = 0, np.zeros(first_number, np.uint8), by_group[0]
    saved = with_table(counts)
    for group, of_group in enumerate(by_group[1:], 1):
        if with_table(joint + of_group) > with_table(joint) + with_table(of_group):
            saved -= with_table(joint)
            number, joint = number + 1, of_group
        else:
            joint = joint + of_group
        new[group] = number
    saved -= with_table(joint) + len(labels) * np.log2(number + 1)
    return new[labels] if number and saved > WORTH * with_table(counts) else None


def with_table(counts: Integers) -> float:
    """Approximate bits of symbols with these counts, including the table of frequencies."""
    return least_bits(counts) + TABLE_BITS + TABLE_BITS_PER_KIND * np.count_nonzero(counts)


def least_bits(counts: Integers) -> float:
    """The empirical entropy of symbols with these counts, in bits."""
    often = counts[counts > 0]
    return float(often @ (np.log2(often.sum()) - np.log2(often))) if len(often) else 0.0
