"""Pieces of a row that resemble each other, together: rows of a matrix differ in size, and so in their symbols."""

import numpy as np
from numpy.typing import NDArray

from ..kernels.frequencies import count_symbols
from ..kernels.pieces import gathered, sum_pieces
from .coders import Symbols
from .model import Integers

PIECE = 256  # symbols
MOST, SMALLEST = 8, 2**14  # groups; symbols of a group at first, as each takes time
FINE = 2**8  # of a bit, in which symbols are weighed
WORTH = 0.01  # of the bits, that it must save
TABLE_BITS, TABLE_BITS_A_KIND = 120, 3.5  # about what a table takes


def groups(symbols: Symbols, counts: Integers) -> NDArray[np.uint8] | None:
    """The group of each piece, from those of the commonest symbols to those of the rarest; None if one is best.

    A piece is as rare as its symbols are in the whole row. Groups begin with as many pieces each; two next to each
    other that had better share a table become one.
    """
    first_number = min(MOST, len(symbols) // SMALLEST)
    if first_number < 2:
        return None
    rare = np.zeros(len(counts), np.int64)
    there = counts > 0
    rare[there] = np.round(FINE * np.log2(counts.sum() / counts[there]))
    order = np.argsort(sum_pieces(symbols, rare, PIECE), kind="stable")
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
    """About what symbols take that are there so often, with the table that says so."""
    return least_bits(counts) + TABLE_BITS + TABLE_BITS_A_KIND * np.count_nonzero(counts)


def least_bits(counts: Integers) -> float:
    """What symbols that are there so often take at least, if nothing else is known of them: their entropy."""
    often = counts[counts > 0]
    return float(often @ (np.log2(often.sum()) - np.log2(often))) if len(often) else 0.0
