"""Custom topologies, given by edges or by a weight matrix."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import index

import numpy as np

from .graph import Graph, check_size, metropolis
from .topology import Topology


@dataclass(frozen=True, repr=False)
class Edges(Topology):
    """A graph given by its edges: (0, 1) joins ranks 0 and 1. Metropolis weights.

    If `directed`, (0, 1) means that rank 0 sends to rank 1 only. A sender gives equal weights to itself and every
    receiver, as `PushSum` needs them.

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
        weights = np.eye(size)
        for i, j in self.edges:
            weights[j, i] = 1
        return Graph("your directed graph", [weights / weights.sum(0)])

    def for_survivors(self, survivors: Sequence[int], size: int) -> "Edges":
        new = {rank: i for i, rank in enumerate(survivors)}
        return replace(self, edges=tuple((new[i], new[j]) for i, j in self.edges if i in new and j in new))


def surviving_topology(topology: Topology, survivors: Sequence[int], size: int) -> Topology:
    """The topology for the survivors: of the same kind, or its remaining edges where that kind has no such graph."""
    kind = topology.for_survivors(survivors, size)
    try:
        kind.of(len(survivors))
    except ValueError:
        graph = topology.of(size)
        return Edges(graph.edges, directed=not graph.symmetric).for_survivors(survivors, size)
    return kind


@dataclass(frozen=True, repr=False)
class Weights(Topology):
    """A graph given by its weight matrix: row i has the weights of rank i for each sender. Columns must sum to 1."""

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

    def for_survivors(self, survivors: Sequence[int], size: int) -> "Weights":
        """The weights that a sender gave to failed ranks are added to its own."""
        kept = np.array(self.rows)[np.ix_(survivors, survivors)]
        missing = np.maximum(0, 1 - kept.sum(0))  # rounding may make it negative
        return Weights(tuple(map(tuple, (kept + np.diag(missing)).tolist())))
