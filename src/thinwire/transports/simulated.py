"""All ranks in one process, round by round."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Peers, Rounds
from .exchange import Place, Post, SentMessage, Shared, rounds
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

    def run(self, talks: Sequence[Rounds]) -> list[Any]:
        """Hold all talks to their end; returns their outcomes, by rank."""
        if len(talks) != self.size:
            raise ValueError(f"{len(talks)} talks were given for {self.size} ranks")
        shared: defaultdict[Place, Shared] = defaultdict(dict)
        ranks = [rounds(talk, r, self.size, self.meters[r], shared) for r, talk in enumerate(talks)]
        office, outcomes = _Mailboxes(), {}
        heard: dict[int, dict[int, Tensor] | None] = dict.fromkeys(range(self.size))
        while heard:
            for rank, delivered in heard.items():
                try:
                    office.take(rank, ranks[rank].send(delivered))  # type: ignore[arg-type]  # None starts it
                except StopIteration as end:
                    outcomes[rank] = end.value
            heard = office.deliver()  # type: ignore[assignment]  # None is for the start
        office.check_empty(outcomes)
        return [outcomes[rank] for rank in range(self.size)]


class _Delivered(NamedTuple):
    buffer: Tensor
    about: "tuple[_Header, ...]"  # what of it is for some ranks only
    post: Post


class _Mailboxes:
    """Has what ranks sent, in order, until whom it is for asks for it; and sees to it that both mean the same."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Post, list[tuple[SentMessage, _Header]]]] = {}
        self.letters: defaultdict[tuple[int, int], deque[_Delivered]] = defaultdict(deque)  # by sender and listener
        self.said: dict[tuple[tuple[int, ...], int], tuple[int, tuple[_Header, ...]]] = {}  # where, who first, what
        self.counts: Counter[tuple[int, tuple[int, ...]]] = Counter()

    def take(self, rank: int, post: Post) -> None:
        about = [(said, _Header.of(said)) for said in post.about]
        to_all = [_is_of_all(said, post) for said, _ in about]
        self._compare_with_first(rank, post, tuple(a for (_, a), whole in zip(about, to_all, strict=True) if whole))
        to_some = [told for told, whole in zip(about, to_all, strict=True) if not whole]
        # Copies, as a wire makes them: who has spoken may go on, and change what it said in place.
        copies = {id(said): said.clone() for said in post.outgoing.values()}
        for listener, buffer in post.outgoing.items():
            told = tuple(a for said, a in to_some if listener in said.tells)
            self.letters[rank, listener].append(_Delivered(copies[id(buffer)], told, post))
        self.waiting[rank] = post, to_some

    def deliver(self) -> dict[int, dict[int, Tensor]]:
        """To all for whom everything is here that they wait for."""
        ready = [rank for rank, (post, _) in self.waiting.items() if all(self.letters[r, rank] for r in post.incoming)]
        return {rank: self._delivered(rank, *self.waiting.pop(rank)) for rank in ready}

    def _delivered(self, rank: int, post: Post, about: "list[tuple[SentMessage, _Header]]") -> dict[int, Tensor]:
        heard = {}
        for other, nbytes in post.incoming.items():
            letter = self.letters[other, rank].popleft()
            expected = tuple(a for said, a in about if other in said.hears)
            _compare(letter.about, expected, f"rank {other} says {{}} to rank {rank}, which expects {{}}")
            if letter.buffer.nbytes != nbytes:
                raise LockStepError(
                    f"rank {other} sends {letter.buffer.nbytes} bytes to rank {rank}, which expects {nbytes}"
                )
            heard[other] = letter.buffer
        return heard

    def _compare_with_first(self, rank: int, post: Post, alike: "tuple[_Header, ...]") -> None:
        """What all ranks say alike is compared at once, even where none of it travels from one to the other."""
        where = (post.among, self.counts[rank, post.among])
        self.counts[rank, post.among] += 1
        first, theirs = self.said.setdefault(where, (rank, alike))
        _compare(alike, theirs, f"rank {rank} says {{}} where rank {first} says {{}}")

    def check_empty(self, outcomes: Mapping[int, Any]) -> None:
        """All that was said has been heard, and nobody waits for anything."""
        for (rank, other), letters in self.letters.items():
            if letters and other in outcomes:
                raise LockStepError(_silent(other, rank, letters[0].post))
        for rank, (post, _) in self.waiting.items():
            missing = min(r for r in post.incoming if not self.letters[r, rank])
            if missing in outcomes:
                raise LockStepError(_silent(missing, rank, post))
            raise LockStepError(f"rank {rank} waits for rank {missing}, which waits for others")


def _is_of_all(said: SentMessage, post: Post) -> bool:
    peers = said.envelope.peers
    return peers.receivers is None and len(peers.weights) == len(post.among)


def _silent(rank: int, other: int, post: Post) -> str:
    said = next((str(_Header.of(said)) for said in post.about), "nothing")
    return f"rank {rank} has nothing more to say, while rank {other} says {said}"


class _Header(NamedTuple):
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
    def of(cls, said: SentMessage) -> "_Header":
        peers, m = said.envelope
        shared = peers if peers.receivers is None else None
        return cls(
            _notation(m.codec), tuple(m.tensor.shape), m.tensor.dtype, m.seed, m.source, m.target, peers.topic, shared
        )

    def __str__(self) -> str:
        weights = "" if self.peers is None else ", ".join(f"{weight:.4g}" for _, weight in self.peers.weights)
        who = "" if self.source is None else f" from {self.source}"
        whom = "" if self.target is None else f" to {self.target}"
        said = f"a {self.dtype} tensor of shape {self.shape} through {self.codec} with seed {self.seed}{who}{whom}"
        return f"{said}{weights and ' weighing ' + weights} on {self.topic!r}"


@lru_cache(maxsize=256)
def _notation(codec: Codec) -> str:
    return repr(codec)


def _compare(told: Sequence[_Header], expected: Sequence[_Header], problem: str) -> None:
    if told != expected:
        here, there = next((a, b) for a, b in zip_longest(told, expected) if a != b)
        raise LockStepError(problem.format(here or "nothing", there or "nothing"))
