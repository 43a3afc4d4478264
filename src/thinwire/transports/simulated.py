"""All ranks in one process, round by round."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import permutations, zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import Peers, Talk
from .exchange import Post, Posts, Said, Shared, rounds
from .meter import Meter


class LockStepError(RuntimeError):
    """Ranks do not say the same things in the same order: over a real network, they would wait forever."""


class Simulated:
    """Runs one talk per rank, deterministically, and counts the same bytes as real processes would."""

    def __init__(self, ranks: int) -> None:
        if ranks < 1:
            raise ValueError(f"Simulated takes 1 rank or more, not {ranks!r}")
        self.size = ranks
        self.meters = [Meter() for _ in range(ranks)]

    def run(self, talks: Sequence[Talk]) -> list[Any]:
        """Hold all talks to their end; returns their outcomes, by rank."""
        if len(talks) != self.size:
            raise ValueError(f"{len(talks)} talks were given for {self.size} ranks")
        shared: defaultdict[int, Shared] = defaultdict(dict)
        ranks = [rounds(talk, r, self.size, self.meters[r], shared) for r, talk in enumerate(talks)]
        heard: list[dict[int, Tensor] | None] = [None] * self.size
        while True:
            posts: dict[int, Post] = {}
            outcomes: dict[int, Any] = {}
            for rank, step in enumerate(ranks):
                _advance(step, heard[rank], rank, posts, outcomes)
            if not posts:
                return [outcomes[rank] for rank in range(self.size)]
            _check(posts, outcomes)
            # Copies, as a wire makes them: who has spoken may go on, and change what it said in place.
            carried = {id(said): said.clone() for post in posts.values() for said in post.outgoing.values()}
            heard = [
                {r: carried[id(posts[r].outgoing[rank])] for r in posts[rank].incoming} for rank in range(self.size)
            ]


def _advance(
    step: Posts, heard: dict[int, Tensor] | None, rank: int, posts: dict[int, Post], outcomes: dict[int, Any]
) -> None:
    try:
        posts[rank] = step.send(heard)  # type: ignore[arg-type]  # None starts it
    except StopIteration as end:
        outcomes[rank] = end.value


def _check(posts: dict[int, Post], outcomes: dict[int, Any]) -> None:
    if outcomes:
        silent, speaking = min(outcomes), min(posts)
        raise LockStepError(
            f"rank {silent} has nothing more to say, while rank {speaking} says "
            f"{next((str(_About.of(said)) for said in posts[speaking].about), 'nothing')}"
        )
    about = {rank: [_About.of(said) for said in post.about] for rank, post in posts.items()}
    size = len(posts)
    if all(said.peers is not None and len(said.peers.weights) == size for told in about.values() for said in told):
        for rank, told in about.items():
            _compare(told, about[0], f"rank {rank} says {{}} where rank 0 says {{}}")
    else:
        for rank, other in permutations(posts, 2):
            told = [a for a, said in zip(about[rank], posts[rank].about, strict=True) if other in said.tells]
            expected = [a for a, said in zip(about[other], posts[other].about, strict=True) if rank in said.hears]
            _compare(told, expected, f"rank {rank} says {{}} to rank {other}, which expects {{}}")
    for rank, post in posts.items():
        for other, nbytes in post.incoming.items():
            sent = posts[other].outgoing[rank].nbytes if rank in posts[other].outgoing else 0
            if sent != nbytes:
                raise LockStepError(f"rank {other} sends {sent} bytes to rank {rank}, which expects {nbytes}")


class _About(NamedTuple):
    """What the ranks have to agree on of a message."""

    codec: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    seed: int
    source: int | None
    target: int | None
    topic: str
    peers: Peers | None  # None if each rank has its own

    @classmethod
    def of(cls, said: Said) -> "_About":
        peers, m = said.envelope
        shared = peers if peers.listeners is None else None
        return cls(
            repr(m.codec), tuple(m.tensor.shape), m.tensor.dtype, m.seed, m.source, m.target, peers.topic, shared
        )

    def __str__(self) -> str:
        weights = "" if self.peers is None else ", ".join(f"{weight:.4g}" for _, weight in self.peers.weights)
        who = "" if self.source is None else f" from {self.source}"
        whom = "" if self.target is None else f" to {self.target}"
        said = f"a {self.dtype} tensor of shape {self.shape} through {self.codec} with seed {self.seed}{who}{whom}"
        return f"{said}{weights and ' weighing ' + weights} on {self.topic!r}"


def _compare(told: list[_About], expected: list[_About], problem: str) -> None:
    if told != expected:
        here, there = next((a, b) for a, b in zip_longest(told, expected) if a != b)
        raise LockStepError(problem.format(here or "nothing", there or "nothing"))
