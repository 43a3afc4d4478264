from dataclasses import dataclass

import numpy as np

from .graph import Graph, check_size
from .topology import Topology


@dataclass(frozen=True, repr=False)
class Exponential(Topology):
    """A directed, time-varying graph: rank i sends to i + 1, then to i + 2, i + 4, ..., and starts again.

    With one peer per round and a power of two of ranks, all ranks have the exact mean after each cycle.

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

    peers: int = 1  # receivers per round, 1 or 2: at the current offset, and with 2 also at the next one

    def __post_init__(self) -> None:
        if not (isinstance(self.peers, int) and self.peers in (1, 2)):
            raise ValueError(f"Exponential sends to 1 or 2 peers per round, not {self.peers!r}")

    def of(self, size: int) -> Graph:
        check_size("exponential graph", size)
        hops = [1 << c for c in range((size - 1).bit_length())] or [0]
        phases = []
        for c in range(len(hops)):
            offsets = {0, *(hops[(c + k) % len(hops)] for k in range(self.peers))}
            weights = np.zeros((size, size))
            for offset in offsets:
                weights[(np.arange(size) + offset) % size, np.arange(size)] = 1 / len(offsets)
            phases.append(weights)
        # With two hops and two peers, all rounds are the same.
        distinct = phases[:1] if all(np.array_equal(phase, phases[0]) for phase in phases) else phases
        return Graph(f"exponential graph, {self.peers} peer{'s' if self.peers > 1 else ''}", distinct)
