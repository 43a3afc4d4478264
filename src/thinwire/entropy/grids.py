"""Grids: the numbers that symbols stand for, and the cell of numbers that are rounded to each."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

POINTS = 8  # per cell, at which a density is evaluated
FINE = 4 * POINTS


@dataclass(frozen=True)
class Grid:
    """Sorted numbers, all integer multiples of a unit; a symbol is the rank of a number.

    The cell around each number is divided into pieces. Densities are evaluated at the center of each piece.
    """

    name: str
    code: int  # on the wire
    bits: int  # per packed symbol
    halves: tuple[int, ...]  # the numbers, in half units
    unit: float
    saturates: bool  # numbers beyond the last are rounded to it
    centered: bool  # zero is the number in the middle
    points: int = POINTS

    @property
    def numbers(self) -> NDArray[np.float64]:
        return np.array(self.halves) * (self.unit / 2)

    @cached_property
    def pieces(self) -> tuple[Integers, Integers]:
        """The (points, widths) of the pieces, with a row per cell, in units of 1 / FINE."""
        halves = self.halves
        edges = [(low + high) * POINTS for low, high in pairwise(halves)]
        first = halves[0] * 2 * POINTS - (edges[0] - halves[0] * 2 * POINTS)
        last = halves[-1] * 2 * POINTS + (halves[-1] * 2 * POINTS - edges[-1])
        cells = [
            [low + (high - low) * i // self.points for i in range(self.points + 1)]
            for low, high in pairwise([first, *edges, last])
        ]
        if self.saturates:  # each piece is a quarter wider than the one before, to cover the tail
            grown = [edges[-1] * 5**i // 4**i for i in range(POINTS + 1)]
            cells[0], cells[-1] = [-cut for cut in reversed(grown)], grown
        cuts = np.array(cells)
        return (cuts[:, 1:] + cuts[:, :-1]) // 2, np.diff(cuts)


def integers(bits: int, code: int, points: int = POINTS) -> Grid:
    return Grid(f"{bits}-bit integers", code, bits, tuple(range(0, 2 ** (bits + 1), 2)), 1.0, False, False, points)


def minifloat(name: str, code: int, exponents: int, mantissas: int, bias: int) -> Grid:
    """Floats of these bits: subnormal at exponent 0, none with an exponent of all ones, one zero."""
    positive = [
        (2**mantissas * (exponent > 0) + mantissa) << max(exponent - 1, 0)
        for exponent in range(2**exponents - 1)
        for mantissa in range(2**mantissas)
    ][1:]
    halves = [-2 * n for n in reversed(positive)] + [0] + [2 * n for n in positive]
    bits = 4 if len(halves) < 16 else 8
    return Grid(name, code, bits, tuple(halves), 2.0 ** (1 - bias - mantissas), True, True)


INTEGERS = {bits: integers(bits, code) for code, bits in enumerate((8, 4, 2, 1))}
MINIFLOATS = {
    grid.name: grid
    for grid in (
        minifloat("fp8-152", 4, 5, 2, 15),
        minifloat("fp8-143", 5, 4, 3, 10),
        minifloat("fp4-121", 6, 2, 1, 1),
    )
}
WIDE = integers(16, 7, points=1)  # with so many cells, each is narrow
GRIDS = {grid.code: grid for grid in (*INTEGERS.values(), *MINIFLOATS.values(), WIDE)}
