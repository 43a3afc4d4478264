"""Random graphs; all ranks sample the same one from the seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .graph import Graph, check_size, metropolis, reachable
from .topology import Topology

TRIES = 10_000


@dataclass(frozen=True, repr=False)
class RandomRegular(Topology):
    """A random regular graph: each rank has `degree` random neighbors. Metropolis weights.

    Examples:
        >>> from thinwire import RandomRegular
        >>> RandomRegular(3, seed=1).of(16)
        <random regular graph of degree 3: 16 ranks, 24 edges>
    """

    degree: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.degree, int) and self.degree >= 2):
            raise ValueError(f"RandomRegular takes a degree of 2 or more, not {self.degree!r}")
        _check_seed("RandomRegular", self.seed)

    def of(self, size: int) -> Graph:
        check_size("random regular graph", size)
        degree = min(self.degree, size - 1)  # survivors may be too few for the full degree
        if size * degree % 2:
            raise ValueError(
                f"there is no graph of {size} ranks with {degree} edges each: one of the two numbers must be even"
            )
        weights = _sample_connected(self, lambda random: _pair_stubs(random, size, degree), self.seed, size)
        return Graph(f"random regular graph of degree {degree}", [weights])

    def for_survivors(self, survivors: Sequence[int], size: int) -> "RandomRegular":
        """With one more edge per rank if there is no graph of the same degree."""
        odd = self.degree < len(survivors) and self.degree * len(survivors) % 2
        return replace(self, degree=self.degree + 1) if odd else self


@dataclass(frozen=True, repr=False)
class ErdosRenyi(Topology):
    """An Erdos-Renyi graph: any two ranks are neighbors with probability p. Metropolis weights."""

    p: float = 0.5  # higher: more edges
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"ErdosRenyi takes a probability above 0 and up to 1, not {self.p!r}")
        _check_seed("ErdosRenyi", self.seed)

    def of(self, size: int) -> Graph:
        check_size("random graph", size)
        weights = _sample_connected(self, lambda r: _flip_coins(r, size, self.p), self.seed, size)
        return Graph(f"random graph of p = {self.p:g}", [weights])


Sampler = Callable[[np.random.Generator], NDArray[np.bool_] | None]


def _sample_connected(kind: Topology, sample: Sampler, seed: int, size: int) -> NDArray[np.float64]:
    """The Metropolis weights of the first sampled graph that is connected."""
    random = np.random.Generator(np.random.PCG64([seed, size]))
    for _ in range(TRIES):
        adjacent = sample(random)
        if adjacent is not None and reachable(adjacent).all():
            return metropolis(size, ((i, j) for i, j in np.argwhere(adjacent).tolist()))
    raise ValueError(f"{kind!r} gave no connected graph of {size} ranks in {TRIES:,} tries: it has too few edges")


def _flip_coins(random: np.random.Generator, size: int, p: float) -> NDArray[np.bool_]:
    upper = np.triu(random.random((size, size)) < p, 1)
    adjacent: NDArray[np.bool_] = upper | upper.T
    return adjacent


def _pair_stubs(random: np.random.Generator, size: int, degree: int) -> NDArray[np.bool_] | None:
    """Pair edge stubs at random, without loops and double edges; None if the remaining ones cannot be paired."""
    adjacent = np.zeros((size, size), bool)
    stubs = np.repeat(np.arange(size), degree)
    while len(stubs):
        stubs = random.permutation(stubs)
        left: list[int] = []
        for i, j in stubs.reshape(-1, 2).tolist():
            if i == j or adjacent[i, j]:
                left += [i, j]
            else:
                adjacent[i, j] = adjacent[j, i] = True
        if len(left) == len(stubs) and not any(i != j and not adjacent[i, j] for i in left for j in left):
            return None
        stubs = np.array(left, np.int64)
    return adjacent


def _check_seed(name: str, seed: int) -> None:
    if not (isinstance(seed, int) and seed >= 0):
        raise ValueError(f"{name} takes a seed of 0 or more, not {seed!r}")
