"""A graph with weights: what each rank makes of what the others say."""

from collections.abc import Iterable
from functools import cached_property
from math import inf, isclose

import numpy as np
from numpy.typing import NDArray

from ..core import Peers

Matrix = NDArray[np.float64]
TOLERANCE = 1e-9  # of sums that are to be 1
ROUNDING = 1e-12  # of what is left after a turn


class Graph:
    """In round k, rank i sums what each rank j says times `phases[k % len(phases)][i, j]`. Checked when it is made.

    Examples:
        >>> import numpy as np
        >>> from thinwire.extend import Graph
        >>> graph = Graph("pairs", [np.array([[0.75, 0.25], [0.25, 0.75]])])
        >>> graph.symmetric, graph.spectral_gap
        (True, 0.5)
    """

    def __init__(self, name: str, phases: Iterable[Matrix]) -> None:
        self.name, self.phases = name, tuple(np.array(phase, np.float64) for phase in phases)
        if not self.phases or not self.phases[0].size:
            raise ValueError(f"{name}: a graph has weights of 1 rank or more for 1 round or more")
        self.size = len(np.atleast_1d(self.phases[0]))
        for phase in self.phases:
            _check(name, phase, self.size)
            phase.flags.writeable = False
        _check_connected(name, self.mixed)

    def __repr__(self) -> str:
        counts = {"rank": self.size, "edge": len(self.edges)} | ({"round": len(self.phases)} if self.varies else {})
        return f"<{self.name}: {', '.join(f'{n} {what}' + 's' * (n != 1) for what, n in counts.items())}>"

    @property
    def varies(self) -> bool:
        return len(self.phases) > 1

    @cached_property
    def symmetric(self) -> bool:
        """Every edge is a conversation: both ends hear each other, and weigh each other alike."""
        return all(_alike(phase, phase.T) for phase in self.phases)

    @cached_property
    def doubly_stochastic(self) -> bool:
        """The mean over the ranks stays, and ranks that are alike stay alike. Without, only push sums are right."""
        return all(np.allclose(phase.sum(1), 1, rtol=0, atol=TOLERANCE) for phase in self.phases)

    @cached_property
    def mixed(self) -> Matrix:
        """What all rounds come to, one after the other."""
        mixed = np.eye(self.size)
        for phase in self.phases:
            mixed = phase @ mixed
        return mixed

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Who speaks to whom in any round; of a symmetric graph, each pair once."""
        there = np.any([phase != 0 for phase in self.phases], axis=0)
        pairs = ((int(j), int(i)) for i, j in zip(*np.nonzero(there), strict=True) if i != j)
        return tuple(sorted((j, i) for j, i in pairs if not self.symmetric or j < i))

    @cached_property
    def degree(self) -> int:
        """How many ranks the busiest one speaks to in a round."""
        heard = [np.count_nonzero(phase, 0) - (np.diag(phase) != 0) for phase in self.phases]
        return max(int(counts.max()) for counts in heard)

    @cached_property
    def shrinkage(self) -> float:
        """What a round leaves of the distance to the mean, on average over the rounds of a turn."""
        if self.size == 1:
            return 0.0
        at_worst = self.doubly_stochastic and self.varies
        left = float(np.linalg.norm(self.mixed - 1 / self.size, 2)) if at_worst else _second(self.mixed)
        if left < ROUNDING or left > 1 - ROUNDING:  # all have the mean after a turn, or differences only move about
            return float(round(left))
        return float(left ** (1 / len(self.phases)))

    @property
    def spectral_gap(self) -> float:
        return 1 - self.shrinkage

    @cached_property
    def diffusion_rate(self) -> float | None:
        """The rate that shrinks differences fastest, 2 / (largest + smallest eigenvalue of 1 - W); None if W varies."""
        if self.varies or not self.symmetric or self.size == 1:
            return None
        laplacian = np.linalg.eigvalsh(np.eye(self.size) - self.phases[0])
        return float(2 / (laplacian[-1] + laplacian[1]))

    def rounds_to(self, share: float) -> float:
        """How many rounds leave this share of the distance to the mean."""
        if self.shrinkage == 0:
            return float(len(self.phases))
        return float(np.log(share) / np.log(self.shrinkage)) if self.shrinkage < 1 else inf

    def weight(self, i: int, j: int, round_: int = 0) -> float:
        return float(self.phases[round_ % len(self.phases)][i, j])

    def row(self, rank: int, round_: int = 0) -> Peers:
        """What a rank sums in a round, with its own share, and who hears it."""
        phase = self.phases[round_ % len(self.phases)]
        weights = tuple((int(j), float(phase[rank, j])) for j in np.flatnonzero(phase[rank]))
        return Peers(self.name, weights, tuple(int(i) for i in np.flatnonzero(phase[:, rank]) if i != rank))

    def others(self, rank: int, round_: int = 0) -> Peers:
        """The same without its own share."""
        peers = self.row(rank, round_)
        return Peers(self.name, tuple((r, weight) for r, weight in peers.weights if r != rank), peers.receivers)

    def edges_of(self, rank: int) -> tuple[Peers, ...]:
        """A rank's conversations: over each, the higher rank's minus the lower rank's."""
        pairs = (pair for pair in self.edges if rank in pair)
        return tuple(Peers(f"{low}-{high}", ((low, -1.0), (high, 1.0))) for low, high in pairs)


def metropolis(size: int, edges: Iterable[tuple[int, int]]) -> Matrix:
    """Weights that need to know the neighbors' numbers of neighbors only: 1 / (1 + the larger of the two)."""
    adjacent = np.zeros((size, size), bool)
    for i, j in edges:
        adjacent[i, j] = adjacent[j, i] = True
    degrees = adjacent.sum(0)
    weights = np.where(adjacent, 1 / (1 + np.maximum.outer(degrees, degrees)), 0)
    return weights + np.diag(1 - weights.sum(1))


def reached(hears: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which ranks hear of rank 0 sooner or later, where rank i hears rank j if hears[i, j]."""
    known = np.zeros(len(hears), bool)
    known[0] = True
    new = known
    while new.any():
        new = hears[:, new].any(1) & ~known
        known = known | new
    return known


def check_size(name: str, size: int) -> None:
    if not (isinstance(size, int) and size >= 1):
        raise ValueError(f"{'an' if name[0] in 'aeiou' else 'a'} {name} is of 1 rank or more, not {size!r}")


def _second(matrix: Matrix) -> float:
    """The second largest eigenvalue in size."""
    return float(np.sort(np.abs(np.linalg.eigvals(matrix)))[-2])


def _alike(one: Matrix, other: Matrix) -> bool:
    """Up to rounding, and 0 at the same places."""
    return np.array_equal(one != 0, other != 0) and np.allclose(one, other, rtol=0, atol=TOLERANCE)


def _check(name: str, weights: Matrix, size: int) -> None:
    if weights.shape != (size, size):
        raise ValueError(f"{name}: weights are square, a row for each rank, not {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        i, j = next(zip(*np.nonzero(~(np.isfinite(weights) & (weights >= 0))), strict=True))
        raise ValueError(f"{name}: rank {i} weighs rank {j} by {weights[i, j]:g}, where weights are 0 or more")
    for j, total in enumerate(weights.sum(0)):
        if not isclose(total, 1, rel_tol=0, abs_tol=TOLERANCE):
            raise ValueError(
                f"{name}: what rank {j} says is weighed by {total:.10g} in all, where the weights of each column are 1 "
                "together: otherwise some of it is lost or made up"
            )


def _check_connected(name: str, mixed: Matrix) -> None:
    hears = mixed != 0
    deaf, unheard = np.flatnonzero(~reached(hears)), np.flatnonzero(~reached(hears.T))
    if len(deaf) or len(unheard):
        i, j = (deaf[0], 0) if len(deaf) else (0, unheard[0])
        raise ValueError(f"{name}: the graph is not connected; rank {i} never hears anything of rank {j}")
