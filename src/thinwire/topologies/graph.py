"""A graph with weights: what each rank makes of what the others say."""

from collections.abc import Iterable
from functools import cached_property
from math import inf, isclose

import numpy as np
from numpy.typing import NDArray

from ..core import Peers

Matrix = NDArray[np.float64]
TOLERANCE = 1e-9  # of sums that are to be 1


class Graph:
    """In round k, rank i sums what each rank j says times phases[k % len(phases)][i, j]. Checked when it is made."""

    def __init__(self, name: str, phases: Iterable[Matrix]) -> None:
        self.name, self.phases = name, tuple(np.asarray(phase, np.float64) for phase in phases)
        self.size = len(self.phases[0])
        for phase in self.phases:
            _check(name, phase, self.size)
        _check_connected(name, self.mixed)

    def __repr__(self) -> str:
        rounds = f", {len(self.phases)} rounds in turn" if len(self.phases) > 1 else ""
        return f"<{self.name}: {self.size} ranks, {len(self.edges)} edges{rounds}>"

    @property
    def varies(self) -> bool:
        return len(self.phases) > 1

    @cached_property
    def symmetric(self) -> bool:
        """Every edge is a conversation: both ends hear each other, and weigh each other alike."""
        return all(np.allclose(phase, phase.T, rtol=0, atol=TOLERANCE) for phase in self.phases)

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
        return max(int((phase != 0).sum(0).max()) - 1 for phase in self.phases)

    @cached_property
    def shrinkage(self) -> float:
        """What a round leaves of the distance to the mean, on average over the rounds of a turn."""
        if self.size == 1:
            return 0.0
        at_worst = self.doubly_stochastic and self.varies
        left = float(np.linalg.norm(self.mixed - 1 / self.size, 2)) if at_worst else _second(self.mixed)
        return left ** (1 / len(self.phases)) if left > 1e-12 else 0.0

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
        return Peers(self.name, tuple((r, weight) for r, weight in peers.weights if r != rank), peers.listeners)

    def edges_of(self, rank: int) -> tuple[Peers, ...]:
        """A rank's conversations: over each, the higher rank's minus the lower rank's."""
        pairs = (pair for pair in self.edges if rank in pair)
        return tuple(Peers(f"{low}-{high}", ((low, -1.0), (high, 1.0))) for low, high in pairs)


def metropolis(size: int, edges: Iterable[tuple[int, int]]) -> Matrix:
    """Weights that need to know the neighbours' numbers of neighbours only: 1 / (1 + the larger of the two)."""
    adjacent = np.zeros((size, size), bool)
    for i, j in edges:
        adjacent[i, j] = adjacent[j, i] = True
    degrees = adjacent.sum(0)
    weights = np.where(adjacent, 1 / (1 + np.maximum.outer(degrees, degrees)), 0)
    return weights + np.diag(1 - weights.sum(1))


def connected(there: NDArray[np.bool_]) -> bool:
    """Whether every rank reaches every other."""
    return not unreached(there).any()


def unreached(there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rank (row) hears nothing of which (column), however long."""
    reach = there | np.eye(len(there), dtype=bool)
    for _ in range(max(1, int(np.ceil(np.log2(len(there)))))):
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    return ~reach


def check_size(name: str, size: int, least: int = 1) -> None:
    if not (isinstance(size, int) and size >= least):
        raise ValueError(f"a {name} is of {least} rank{'s' if least > 1 else ''} or more, not {size!r}")


def _second(matrix: Matrix) -> float:
    """The second largest eigenvalue in size."""
    return float(np.sort(np.abs(np.linalg.eigvals(matrix)))[-2])


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
    missing = unreached(mixed != 0)
    if missing.any():
        i, j = next(zip(*np.nonzero(missing), strict=True))
        raise ValueError(f"{name}: the graph is not connected; rank {i} never hears anything of rank {j}")
