"""Which examples each rank trains on, and in what order."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

FORMS = '"iid", or "dirichlet:0.1" with any number above 0: the smaller, the more the ranks differ'

TURNS = 100  # in which ranks receive their examples
TRACE = 1e-9  # weight of every class in every mixture, for when the classes of a mixture have run out


def shards(labels: Tensor | None, count: int, ranks: int, how: str, seed: int) -> list[Tensor]:
    """Divide `count` examples into disjoint shards of equal size, one per rank; a few may be left over."""
    if count < ranks:
        raise ValueError(f"{count} examples cannot be divided among {ranks} ranks")
    alpha = skew(how)
    generator = np.random.default_rng(seed)
    if alpha is None:
        order = torch.from_numpy(generator.permutation(count))
        return list(order[: count // ranks * ranks].view(ranks, -1))
    if labels is None:
        raise ValueError(f"{how!r} divides examples by class, and those of this task have none; use 'iid'")
    return skewed(labels[:count].numpy(), ranks, alpha, generator)


def skew(how: str) -> float | None:
    """The parameter of the Dirichlet distribution in a text such as "dirichlet:0.1", or None for "iid"."""
    kind, colon, number = how.partition(":")
    if kind == "iid" and not colon:
        return None
    try:
        alpha = float(number) if kind == "dirichlet" else math.nan
    except ValueError:
        alpha = math.nan
    if not 0 < alpha < math.inf:
        raise ValueError(f"{how!r} is not a way to divide examples: {FORMS}")
    return alpha


def skewed(labels: NDArray[np.int64], ranks: int, alpha: float, generator: np.random.Generator) -> list[Tensor]:
    """Give each rank a mixture of classes sampled from Dirichlet(alpha), and the same number of examples.

    The ranks take turns and receive a few examples at a time, so that no rank is left with the remainder. When a class
    has run out, ranks continue with the other classes of their mixtures.
    """
    classes, numbers = np.unique(labels, return_inverse=True)
    left = [list(generator.permutation(np.flatnonzero(numbers == number))) for number in range(len(classes))]
    mixtures = generator.dirichlet([alpha] * len(classes), size=ranks)
    size = len(labels) // ranks
    assigned: list[list[int]] = [[] for _ in range(ranks)]
    while len(assigned[-1]) < size:
        for share, mixture in zip(assigned, mixtures, strict=True):
            wanted = min(-(-size // TURNS), size - len(share))
            while wanted:
                available = np.array([len(members) for members in left])
                weights = np.where(available > 0, mixture + TRACE, 0)
                taken = np.minimum(generator.multinomial(wanted, weights / weights.sum()), available)
                for members, count in zip(left, taken, strict=True):
                    share += [members.pop() for _ in range(count)]
                wanted -= int(taken.sum())
    return [torch.from_numpy(generator.permutation(np.array(share))) for share in assigned]


class Batches:
    """An endless iterator over the batches of a shard, shuffled in every epoch; incomplete batches are dropped."""

    def __init__(self, shard: Tensor, size: int, generator: Generator) -> None:
        if len(shard) < size:
            raise ValueError(f"a rank has {len(shard)} examples, which is fewer than its batch of {size}")
        self._shard, self._size, self._generator = shard, size, generator
        self._order, self._used = shard[:0], 0  # of this epoch, and how many of it were used

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Tensor:
        if self._used == len(self._order):
            used = len(self._shard) // self._size * self._size
            self._order = self._shard[torch.randperm(len(self._shard), generator=self._generator)[:used]]
            self._used = 0
        self._used += self._size
        return self._order[self._used - self._size : self._used]

    def state_dict(self) -> dict[str, Any]:
        return {"order": self._order, "used": self._used, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._order, self._used = state["order"], state["used"]
        self._generator.set_state(state["generator"])
