"""Which examples each rank trains on, and in what order."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

FORMS = '"iid", or "dirichlet:0.1" with any number above 0: the smaller, the more the ranks differ'

TURNS = 100  # in which the ranks fill up
TRACE = 1e-9  # of every class in every mixture, so that there is something to take when its own have run out


def shards(labels: Tensor | None, count: int, ranks: int, how: str, seed: int) -> list[Tensor]:
    """Deal `count` examples out to the ranks, each its own and equally many; a few may be left over."""
    if count < ranks:
        raise ValueError(f"{count} examples cannot be divided among {ranks} ranks")
    alpha = skew(how)
    generator = np.random.default_rng(seed)
    if alpha is None:
        order = torch.from_numpy(generator.permutation(count))
        return list(order[: count // ranks * ranks].view(ranks, -1))
    if labels is None:
        raise ValueError(f"{how!r} deals examples out by their class, and those of this task have none; use 'iid'")
    return skewed(labels[:count].numpy(), ranks, alpha, generator)


def skew(how: str) -> float | None:
    """The parameter of the Dirichlet distribution that a text asks for, or None for equal shares of everything."""
    kind, colon, number = how.partition(":")
    if kind == "iid" and not colon:
        return None
    try:
        alpha = float(number) if kind == "dirichlet" else math.nan
    except ValueError:
        alpha = math.nan
    if not 0 < alpha < math.inf:
        raise ValueError(f"{how!r} is not a way to deal examples out: {FORMS}")
    return alpha


def skewed(labels: NDArray[np.int64], ranks: int, alpha: float, generator: np.random.Generator) -> list[Tensor]:
    """Give each rank its own mixture of the classes, drawn from Dirichlet(alpha), and equally many examples.

    The ranks fill up side by side, a little at a time, so that none is left with the rest. Where a class has no more
    examples, they go on with the others in their mixtures.
    """
    classes, numbers = np.unique(labels, return_inverse=True)
    left = [list(generator.permutation(np.flatnonzero(numbers == number))) for number in range(len(classes))]
    mixtures = generator.dirichlet([alpha] * len(classes), size=ranks)
    size = len(labels) // ranks
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    while len(dealt[-1]) < size:
        for share, mixture in zip(dealt, mixtures, strict=True):
            wanted = min(-(-size // TURNS), size - len(share))
            while wanted:
                there = np.array([len(members) for members in left])
                weights = np.where(there > 0, mixture + TRACE, 0)
                taken = np.minimum(generator.multinomial(wanted, weights / weights.sum()), there)
                for members, count in zip(left, taken, strict=True):
                    share += [members.pop() for _ in range(count)]
                wanted -= int(taken.sum())
    return [torch.from_numpy(generator.permutation(np.array(share))) for share in dealt]


class Batches:
    """Batches of a shard without end: epoch after epoch in a new order, without what does not fill a batch."""

    def __init__(self, shard: Tensor, size: int, generator: Generator) -> None:
        if len(shard) < size:
            raise ValueError(f"a rank has {len(shard)} examples, which is fewer than its batch of {size}")
        self._shard, self._size, self._generator = shard, size, generator
        self._order, self._used = shard[:0], 0  # of this epoch, and how many of it were given out

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Tensor:
        if self._used == len(self._order):
            whole = len(self._shard) // self._size * self._size
            self._order = self._shard[torch.randperm(len(self._shard), generator=self._generator)[:whole]]
            self._used = 0
        self._used += self._size
        return self._order[self._used - self._size : self._used]

    def state_dict(self) -> dict[str, Any]:
        return {"order": self._order, "used": self._used, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._order, self._used = state["order"], state["used"]
        self._generator.set_state(state["generator"])
