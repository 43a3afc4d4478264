"""Graphs that people bring along."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index

import numpy as np

from .graph import Graph, check_size, metropolis
from .topology import Topology


@dataclass(frozen=True, repr=False)
class Edges(Topology):
    """The edges of your network: (0, 1) joins ranks 0 and 1. Weighed as Metropolis does.

    If `directed`, (0, 1) is a way from 0 to 1 only, and each rank says as much to each as it keeps: for `PushSum`.

    Examples:
        >>> from thinwire import Edges
        >>> Edges(((0, 1), (1, 2), (2, 3))).of(4).mixed.round(2).tolist()
        [[0.67, 0.33, 0.0, 0.0], [0.33, 0.33, 0.33, 0.0], [0.0, 0.33, 0.33, 0.33], [0.0, 0.0, 0.33, 0.67]]
        >>> Edges(((0, 1), (2, 3))).of(4)
        Traceback (most recent call last):
        ValueError: your graph: the graph is not connected; ...
    """

    edges: tuple[tuple[int, int], ...]
    directed: bool = False

    def __post_init__(self) -> None:
        try:
            edges = tuple((index(i), index(j)) for i, j in self.edges)
        except (TypeError, ValueError):
            raise ValueError(f"Edges takes pairs of ranks, such as ((0, 1), (1, 2)), not {self.edges!r}") from None
        object.__setattr__(self, "edges", edges)
        wrong = [edge for edge in edges if edge[0] == edge[1] or min(edge) < 0]
        if wrong:
            raise ValueError(f"Edges joins two different ranks from 0 on, not {wrong[0]}")

    def of(self, size: int) -> Graph:
        check_size("graph", size)
        beyond = [edge for edge in self.edges if max(edge) >= size]
        if beyond:
            raise ValueError(f"the edge {beyond[0]} names rank {max(beyond[0])}, but there are only {size} ranks")
        if not self.directed:
            return Graph("your graph", [metropolis(size, self.edges)])
        ways = np.eye(size)
        for i, j in self.edges:
            ways[j, i] = 1
        return Graph("your directed graph", [ways / ways.sum(0)])

    def among(self, survivors: Sequence[int], size: int) -> "Edges":
        new = {rank: i for i, rank in enumerate(survivors)}
        return replace(self, edges=tuple((new[i], new[j]) for i, j in self.edges if i in new and j in new))


def edges_left(topology: Topology, survivors: Sequence[int], size: int) -> Topology:
    """The kind of graph to go on with: the same, or where there is none of so few ranks, what is left of it."""
    kind = topology.among(survivors, size)
    try:
        kind.of(len(survivors))
    except ValueError:
        graph = topology.of(size)
        return Edges(graph.edges, directed=not graph.symmetric).among(survivors, size)
    return kind


@dataclass(frozen=True, repr=False)
class Weights(Topology):
    """A weight matrix of your own: row i says what rank i makes of what each rank says. Columns have sums of 1."""

    rows: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        try:
            rows = tuple(tuple(float(weight) for weight in row) for row in self.rows)
        except (TypeError, ValueError):
            raise ValueError(f"Weights takes rows of numbers, not {self.rows!r}") from None
        object.__setattr__(self, "rows", rows)
        if not rows or any(len(row) != len(rows) for row in rows):
            raise ValueError(f"Weights takes as many numbers in each row as there are rows, not {self.rows!r}")
        self.of(len(rows))

    def of(self, size: int) -> Graph:
        if size != len(self.rows):
            raise ValueError(f"these weights are of {len(self.rows)} ranks, not {size}")
        return Graph("your weights", [np.array(self.rows)])

    def among(self, survivors: Sequence[int], size: int) -> "Weights":
        """What went to those who are gone stays with whoever said it."""
        kept = np.array(self.rows)[np.ix_(survivors, survivors)]
        lost = np.maximum(0, 1 - kept.sum(0))  # rounding may make it less than nothing
        return Weights(tuple(map(tuple, (kept + np.diag(lost)).tolist())))
