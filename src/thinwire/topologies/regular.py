"""Graphs whose edges are conversations, and which look alike from everywhere (but for a star)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from .custom import Edges
from .graph import Graph, Matrix, check_size, metropolis
from .topology import Topology


@dataclass(frozen=True, repr=False)
class Ring(Topology):
    """Each rank speaks with the one before it and the one after it. A third each.

    Examples:
        >>> from thinwire import Ring
        >>> graph = Ring().of(8)
        >>> graph
        <ring: 8 ranks, 8 edges>
        >>> graph.degree, round(graph.spectral_gap, 3)
        (2, 0.195)
    """

    def of(self, size: int) -> Graph:
        check_size("ring", size)
        return Graph("ring", [_ring(size)])


@dataclass(frozen=True, repr=False)
class Torus(Topology):
    """A grid whose ends are joined, as square as it can be: four neighbors and itself, a fifth each.

    Of a prime number of ranks it is a ring.

    Examples:
        >>> from thinwire import Ring, Torus
        >>> Torus().sides(16)
        (4, 4)
        >>> for kind in (Ring(), Torus()):
        ...     print(kind.of(16), round(kind.of(16).spectral_gap, 3))
        <ring: 16 ranks, 16 edges> 0.051
        <torus of 4 x 4: 16 ranks, 32 edges> 0.4
    """

    def sides(self, size: int) -> tuple[int, int]:
        """How many rows and columns so many ranks stand in."""
        check_size("torus", size)
        rows = next(n for n in range(isqrt(size), 0, -1) if size % n == 0)
        return rows, size // rows

    def of(self, size: int) -> Graph:
        rows, columns = self.sides(size)
        if rows == 1:
            return Graph("torus, which is a ring here", [_ring(size)])
        weights = np.zeros((size, size))
        for rank in range(size):
            row, column = divmod(rank, columns)
            for down, right in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)):  # two ways to the same rank add up
                weights[rank, (row + down) % rows * columns + (column + right) % columns] += 0.2
        return Graph(f"torus of {rows} x {columns}", [weights])


@dataclass(frozen=True, repr=False)
class Star(Topology):
    """All speak with rank 0 only.

    Examples:
        >>> from thinwire import Star
        >>> Star().of(4).edges
        ((0, 1), (0, 2), (0, 3))
    """

    def of(self, size: int) -> Graph:
        check_size("star", size)
        return Graph("star", [metropolis(size, ((0, rank) for rank in range(1, size)))])


@dataclass(frozen=True, repr=False)
class Complete(Topology):
    """Everyone speaks with everyone: the mean in one round.

    Examples:
        >>> from thinwire import Complete
        >>> graph = Complete().of(8)
        >>> graph.degree, graph.spectral_gap
        (7, 1.0)
    """

    def of(self, size: int) -> Graph:
        check_size("complete graph", size)
        return Graph("complete graph", [np.full((size, size), 1 / size)])


@dataclass(frozen=True, repr=False)
class Hypercube(Topology):
    """Ranks speak whose numbers differ in one bit. Of 2, 4, 8, ... ranks.

    Examples:
        >>> from thinwire import Hypercube
        >>> [edge for edge in Hypercube().of(8).edges if 5 in edge]
        [(1, 5), (4, 5), (5, 7)]
    """

    def of(self, size: int) -> Graph:
        check_size("hypercube", size)
        if size & (size - 1):
            raise ValueError(f"a hypercube is of 2, 4, 8, ... ranks, not {size}")
        return Graph("hypercube", [metropolis(size, _cube(size))])

    def among(self, survivors: Sequence[int], size: int) -> Topology:
        """The same, or what so many ranks have of the next larger one."""
        left = len(survivors)
        return Edges(tuple(_cube(left))) if left & (left - 1) else self


def _cube(size: int) -> Iterator[tuple[int, int]]:
    """The edges of a hypercube between its first ranks."""
    bits = range((size - 1).bit_length())
    return ((low, high) for low in range(size) for bit in bits if low < (high := low ^ 1 << bit) < size)


def _ring(size: int) -> Matrix:
    return metropolis(size, ((rank, (rank + 1) % size) for rank in range(size) if size > 1))
