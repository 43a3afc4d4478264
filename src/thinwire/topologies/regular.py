"""Undirected graphs of regular shape. All but the star look the same from every rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from .custom import Edges
from .graph import Graph, Matrix, check_size, metropolis
from .topology import Topology


@dataclass(frozen=True, repr=False)
class Ring(Topology):
    """A ring: each rank averages with the rank before it and the rank after it, with weights of 1/3.

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
    """A torus, as square as possible: each rank averages with four neighbors, with weights of 1/5.

    For a prime number of ranks it is a ring.

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
        """The rows and columns of `size` ranks."""
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
            # Weights of two paths to the same rank add up.
            for down, right in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)):
                weights[rank, (row + down) % rows * columns + (column + right) % columns] += 0.2
        return Graph(f"torus of {rows} x {columns}", [weights])


@dataclass(frozen=True, repr=False)
class Star(Topology):
    """A star: all ranks exchange with rank 0 only. Metropolis weights.

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
    """The complete graph: the exact mean in one round.

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
    """A hypercube of 2, 4, 8, ... ranks: neighbors are ranks whose numbers differ in one bit.

    Examples:
        >>> from thinwire import Hypercube
        >>> [edge for edge in Hypercube().of(8).edges if 5 in edge]
        [(1, 5), (4, 5), (5, 7)]
    """

    def of(self, size: int) -> Graph:
        check_size("hypercube", size)
        if size & (size - 1):
            raise ValueError(f"a hypercube has 2, 4, 8, ... ranks, not {size}")
        return Graph("hypercube", [metropolis(size, _cube(size))])

    def for_survivors(self, survivors: Sequence[int], size: int) -> Topology:
        """The same, or the edges that the survivors have in the next larger hypercube."""
        left = len(survivors)
        return Edges(tuple(_cube(left))) if left & (left - 1) else self


def _cube(size: int) -> Iterator[tuple[int, int]]:
    """The edges between the first `size` ranks of a hypercube."""
    bits = range((size - 1).bit_length())
    return ((low, high) for low in range(size) for bit in bits if low < (high := low ^ 1 << bit) < size)


def _ring(size: int) -> Matrix:
    return metropolis(size, ((rank, (rank + 1) % size) for rank in range(size) if size > 1))
