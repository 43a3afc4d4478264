from dataclasses import dataclass

import numpy as np

from .graph import Graph, check_size
from .topology import Topology


@dataclass(frozen=True, repr=False)
class Exponential(Topology):
    """One way and in turn: rank i speaks to i + 1, then to i + 2, i + 4, ..., and begins again.

    With one peer a round and a power of two of ranks, all have the mean exactly after a turn.

    Examples:
        >>> from thinwire import Exponential
        >>> graph = Exponential().of(8)
        >>> graph, graph.degree
        (<exponential graph, 1 peer: 8 ranks, 24 edges, 3 rounds>, 1)
        >>> [edge for edge in graph.edges if edge[0] == 0]  # one of them in each round
        [(0, 1), (0, 2), (0, 4)]
        >>> graph.spectral_gap  # after the three rounds, all ranks have the mean
        1.0
    """

    peers: int = 1  # that a rank speaks to in a round: at a hop, and with 2 at the next one as well

    def __post_init__(self) -> None:
        if not (isinstance(self.peers, int) and self.peers in (1, 2)):
            raise ValueError(f"Exponential speaks to 1 or 2 peers a round, not {self.peers!r}")

    def of(self, size: int) -> Graph:
        check_size("exponential graph", size)
        hops = [1 << c for c in range((size - 1).bit_length())] or [0]
        phases = []
        for c in range(len(hops)):
            there = {0, *(hops[(c + k) % len(hops)] for k in range(self.peers))}
            weights = np.zeros((size, size))
            for hop in there:
                weights[(np.arange(size) + hop) % size, np.arange(size)] = 1 / len(there)
            phases.append(weights)
        # Two hops of two are the same in every round.
        distinct = phases[:1] if all(np.array_equal(phase, phases[0]) for phase in phases) else phases
        return Graph(f"exponential graph, {self.peers} peer{'s' if self.peers > 1 else ''}", distinct)
