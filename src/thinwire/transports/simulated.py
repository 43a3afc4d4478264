"""All ranks in one process, round by round."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from torch import Tensor

from ..core import Talk
from .exchange import Post, Posts, Shared, rounds
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
            heard = [{r: posts[r].outgoing[rank] for r in posts[rank].incoming} for rank in range(self.size)]


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
            f"rank {silent} has nothing more to say, while rank {speaking} says {_told(posts[speaking].about)}"
        )
    first = posts[0]
    for rank, post in posts.items():
        if post.about != first.about:
            told, expected = next((a, b) for a, b in zip_longest(post.about, first.about) if a != b)
            raise LockStepError(f"rank {rank} says {_told((told,))} where rank 0 says {_told((expected,))}")
    for rank, post in posts.items():
        for other, nbytes in post.incoming.items():
            sent = posts[other].outgoing[rank].nbytes if rank in posts[other].outgoing else 0
            if sent != nbytes:
                raise LockStepError(f"rank {other} sends {sent} bytes to rank {rank}, which expects {nbytes}")


def _told(about: tuple[Any, ...]) -> str:
    if about[0] is None:
        return "nothing"
    codec, shape, dtype, seed, source, target, peers = about[0]
    weights = ", ".join(f"{weight:.4g}" for _, weight in peers.weights)
    who = "" if source is None else f" from {source}"
    whom = "" if target is None else f" to {target}"
    said = f"a {dtype} tensor of shape {shape} through {codec} with seed {seed}"
    return f"{said}{who}{whom} weighing {weights} on {peers.topic!r}"
