"""Which examples each rank trains on, and in what order."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

FORMS = '"iid", or "dirichlet:0.1" with any number above 0: the smaller, the more the ranks differ'


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
    """Share each class out by a draw from Dirichlet(alpha); what a rank has too much of fills up those with too little.

    The draw alone would give ranks unequal numbers, and then they would not finish an epoch together.
    """
    dealt: list[list[NDArray[np.int64]]] = [[] for _ in range(ranks)]
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        cuts = (generator.dirichlet([alpha] * ranks).cumsum()[:-1] * len(members)).round().astype(int)
        for rank, part in enumerate(np.split(members, cuts)):
            dealt[rank].append(part)

    size = len(labels) // ranks
    shuffled = [generator.permutation(np.concatenate(share)) for share in dealt]
    spare = generator.permutation(np.concatenate([share[size:] for share in shuffled]))
    filled = []
    for share in shuffled:
        lacking = max(0, size - len(share))
        filled.append(torch.from_numpy(np.concatenate([share[:size], spare[:lacking]])))
        spare = spare[lacking:]
    return filled


def batches(shard: Tensor, size: int, generator: Generator) -> Iterator[Tensor]:
    """Batches of the shard without end: epoch after epoch in a new order, without what does not fill a batch."""
    if len(shard) < size:
        raise ValueError(f"a rank has {len(shard)} examples, which is fewer than its batch of {size}")
    return endless(shard, size, generator)


def endless(shard: Tensor, size: int, generator: Generator) -> Iterator[Tensor]:
    while True:
        order = torch.randperm(len(shard), generator=generator)[: len(shard) // size * size]
        yield from torch.split(shard[order], size)
