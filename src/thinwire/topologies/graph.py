"""Graphs with mixing weights."""

from collections.abc import Iterable
from functools import cached_property
from math import inf, isclose

import numpy as np
from numpy.typing import NDArray

from ..core import Peers

Matrix = NDArray[np.float64]
TOLERANCE = 1e-9  # of sums that must be 1
ROUNDING = 1e-12  # of the shrinkage over a cycle


class Graph:
    """In round k, rank i weighs the message of rank j by phases[k % len(phases)][i, j]. Weights are checked.

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
            raise ValueError(f"{name}: a graph needs weights for at least 1 rank and 1 round")
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
        """Whether both ends of every edge send to each other, with equal weights."""
        return all(_alike(phase, phase.T) for phase in self.phases)

    @cached_property
    def doubly_stochastic(self) -> bool:
        """Whether rows sum to 1, too: mixing keeps the mean over the ranks. If not, only push-sum is correct."""
        return all(np.allclose(phase.sum(1), 1, rtol=0, atol=TOLERANCE) for phase in self.phases)

    @cached_property
    def mixed(self) -> Matrix:
        """The product of the weight matrices of a cycle."""
        mixed = np.eye(self.size)
        for phase in self.phases:
            mixed = phase @ mixed
        return mixed

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The (sender, receiver) pairs of all rounds; each pair once if the graph is symmetric."""
        there = np.any([phase != 0 for phase in self.phases], axis=0)
        pairs = ((int(j), int(i)) for i, j in zip(*np.nonzero(there), strict=True) if i != j)
        return tuple(sorted((j, i) for j, i in pairs if not self.symmetric or j < i))

    @cached_property
    def degree(self) -> int:
        """The largest number of ranks that a rank sends to in a round."""
        receivers = [np.count_nonzero(phase, 0) - (np.diag(phase) != 0) for phase in self.phases]
        return max(int(counts.max()) for counts in receivers)

    @cached_property
    def shrinkage(self) -> float:
        """The factor by which a round shrinks the distance to the mean, averaged over a cycle."""
        if self.size == 1:
            return 0.0
        worst_case = self.doubly_stochastic and self.varies
        remaining = float(np.linalg.norm(self.mixed - 1 / self.size, 2)) if worst_case else _second(self.mixed)
        if remaining < ROUNDING or remaining > 1 - ROUNDING:  # the exact mean after a cycle, or no contraction at all
            return float(round(remaining))
        return float(remaining ** (1 / len(self.phases)))

    @property
    def spectral_gap(self) -> float:
        return 1 - self.shrinkage

    @cached_property
    def diffusion_rate(self) -> float | None:
        """The rate of fastest diffusion, 2 / (largest + smallest nonzero eigenvalue of 1 - W); None if W varies."""
        if self.varies or not self.symmetric or self.size == 1:
            return None
        laplacian = np.linalg.eigvalsh(np.eye(self.size) - self.phases[0])
        return float(2 / (laplacian[-1] + laplacian[1]))

    def rounds_to(self, share: float) -> float:
        """The number of rounds after which this share of the distance to the mean remains."""
        if self.shrinkage == 0:
            return float(len(self.phases))
        return float(np.log(share) / np.log(self.shrinkage)) if self.shrinkage < 1 else inf

    def weight(self, i: int, j: int, round_: int = 0) -> float:
        return float(self.phases[round_ % len(self.phases)][i, j])

    def row(self, rank: int, round_: int = 0) -> Peers:
        """The weights with which a rank sums messages in a round, including its own, and its receivers."""
        phase = self.phases[round_ % len(self.phases)]
        weights = tuple((int(j), float(phase[rank, j])) for j in np.flatnonzero(phase[rank]))
        return Peers(self.name, weights, tuple(int(i) for i in np.flatnonzero(phase[:, rank]) if i != rank))

    def others(self, rank: int, round_: int = 0) -> Peers:
        """The same without the rank's own weight."""
        peers = self.row(rank, round_)
        return Peers(self.name, tuple((r, weight) for r, weight in peers.weights if r != rank), peers.receivers)

    def edges_of(self, rank: int) -> tuple[Peers, ...]:
        """The edges of a rank, each as the higher rank's message minus the lower rank's."""
        pairs = (pair for pair in self.edges if rank in pair)
        return tuple(Peers(f"{low}-{high}", ((low, -1.0), (high, 1.0))) for low, high in pairs)


def metropolis(size: int, edges: Iterable[tuple[int, int]]) -> Matrix:
    """Metropolis weights: 1 / (1 + the larger degree of both ends) per edge."""
    adjacent = np.zeros((size, size), bool)
    for i, j in edges:
        adjacent[i, j] = adjacent[j, i] = True
    degrees = adjacent.sum(0)
    weights = np.where(adjacent, 1 / (1 + np.maximum.outer(degrees, degrees)), 0)
    return weights + np.diag(1 - weights.sum(1))


def reachable(receives: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which ranks are reachable from rank 0, where rank i receives from rank j if receives[i, j]."""
    known = np.zeros(len(receives), bool)
    known[0] = True
    new = known
    while new.any():
        new = receives[:, new].any(1) & ~known
        known = known | new
    return known


def check_size(name: str, size: int) -> None:
    if not (isinstance(size, int) and size >= 1):
        raise ValueError(f"{'an' if name[0] in 'aeiou' else 'a'} {name} has 1 rank or more, not {size!r}")


def _second(matrix: Matrix) -> float:
    """The second largest magnitude of the eigenvalues."""
    return float(np.sort(np.abs(np.linalg.eigvals(matrix)))[-2])


def _alike(one: Matrix, other: Matrix) -> bool:
    """Equal up to rounding, with zeros at the same positions."""
    return np.array_equal(one != 0, other != 0) and np.allclose(one, other, rtol=0, atol=TOLERANCE)


def _check(name: str, weights: Matrix, size: int) -> None:
    if weights.shape != (size, size):
        raise ValueError(f"{name}: weights must be a square matrix with a row per rank, not {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        i, j = next(zip(*np.nonzero(~(np.isfinite(weights) & (weights >= 0))), strict=True))
        raise ValueError(f"{name}: rank {i} weighs rank {j} by {weights[i, j]:g}, but weights must be 0 or more")
    for j, total in enumerate(weights.sum(0)):
        if not isclose(total, 1, rel_tol=0, abs_tol=TOLERANCE):
            raise ValueError(
                f"{name}: the weights of rank {j}'s messages (column {j}) sum to {total:.10g}, but every column "
                "must sum to 1, or mixing would not keep the sum over the ranks"
            )


def _check_connected(name: str, mixed: Matrix) -> None:
    receives = mixed != 0
    unreached, not_reaching = np.flatnonzero(~reachable(receives)), np.flatnonzero(~reachable(receives.T))
    if len(unreached) or len(not_reaching):
        i, j = (unreached[0], 0) if len(unreached) else (0, not_reaching[0])
        raise ValueError(f"{name}: the graph is not connected; nothing from rank {j} ever reaches rank {i}")
