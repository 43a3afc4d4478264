"""Graphs that are drawn, the same for everyone who draws with the same seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .graph import Graph, check_size, metropolis, reached
from .topology import Topology

TRIES = 10_000


@dataclass(frozen=True, repr=False)
class RandomRegular(Topology):
    """Each rank speaks with so many others, drawn at random.

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
        degree = min(self.degree, size - 1)  # those who are left of more may be too few
        if size * degree % 2:
            raise ValueError(
                f"there is no graph of {size} ranks with {degree} edges each: one of the two has to be even"
            )
        drawn = _drawn(self, lambda random: _matched(random, size, degree), self.seed, size)
        return Graph(f"random regular graph of degree {degree}", [drawn])

    def among(self, survivors: Sequence[int], size: int) -> "RandomRegular":
        """With one edge more each, where there is no graph of so many ranks otherwise."""
        odd = self.degree < len(survivors) and self.degree * len(survivors) % 2
        return replace(self, degree=self.degree + 1) if odd else self


@dataclass(frozen=True, repr=False)
class ErdosRenyi(Topology):
    """Any two ranks speak with a given probability; weighed as Metropolis does."""

    p: float = 0.5  # higher: more edges
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"ErdosRenyi takes a probability above 0 and up to 1, not {self.p!r}")
        _check_seed("ErdosRenyi", self.seed)

    def of(self, size: int) -> Graph:
        check_size("random graph", size)
        return Graph(
            f"random graph of p = {self.p:g}", [_drawn(self, lambda r: _coins(r, size, self.p), self.seed, size)]
        )


Draw = Callable[[np.random.Generator], NDArray[np.bool_] | None]


def _drawn(kind: Topology, draw: Draw, seed: int, size: int) -> NDArray[np.float64]:
    """The weights of the first connected graph that is drawn."""
    random = np.random.Generator(np.random.PCG64([seed, size]))
    for _ in range(TRIES):
        there = draw(random)
        if there is not None and reached(there).all():
            return metropolis(size, ((i, j) for i, j in np.argwhere(there).tolist()))
    raise ValueError(f"{kind!r} gave no connected graph of {size} ranks in {TRIES:,} tries: it has too few edges")


def _coins(random: np.random.Generator, size: int, p: float) -> NDArray[np.bool_]:
    upper = np.triu(random.random((size, size)) < p, 1)
    there: NDArray[np.bool_] = upper | upper.T
    return there


def _matched(random: np.random.Generator, size: int, degree: int) -> NDArray[np.bool_] | None:
    """Join loose ends in pairs, each with one that it may be joined to; None where none is left."""
    there = np.zeros((size, size), bool)
    loose = np.repeat(np.arange(size), degree)
    while len(loose):
        loose = random.permutation(loose)
        left: list[int] = []
        for i, j in loose.reshape(-1, 2).tolist():
            if i == j or there[i, j]:
                left += [i, j]
            else:
                there[i, j] = there[j, i] = True
        if len(left) == len(loose) and not any(i != j and not there[i, j] for i in left for j in left):
            return None
        loose = np.array(left, np.int64)
    return there


def _check_seed(name: str, seed: int) -> None:
    if not (isinstance(seed, int) and seed >= 0):
        raise ValueError(f"{name} takes a seed of 0 or more, not {seed!r}")
