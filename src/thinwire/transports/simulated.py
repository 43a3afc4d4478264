"""Runs the exchanges of all ranks in one thread, round by round, and checks that their messages match."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Peers, Rounds, Route
from .meter import Meter
from .rounds import Post, RoundKey, RoutedMessage, Shared, rounds


class LockStepError(RuntimeError):
    """Ranks do not send the same messages in the same order. Over a real network they would deadlock.

    Examples:
        >>> import torch
        >>> from thinwire import Identity
        >>> from thinwire.extend import Message, all_ranks, lockstep
        >>> from thinwire.simulate import Simulated
        >>> def exchange(size):
        ...     yield Message(torch.zeros(size), Identity())
        >>> Simulated(2).run([lockstep([(all_ranks(2), exchange(size))]) for size in (3, 4)])
        Traceback (most recent call last):
        thinwire.transports.simulated.LockStepError: rank 1 sends ...
    """


class Simulated:
    """Runs one exchange per rank, deterministically, and counts the same bytes as real processes.

    Examples:
        >>> import torch
        >>> from thinwire import Average, Cast
        >>> from thinwire.extend import all_ranks, lockstep
        >>> from thinwire.simulate import Simulated
        >>> reducer, cluster = Average(Cast("float16")), Simulated(4)
        >>> states = [reducer.init(torch.zeros(100), seed=0) for _ in range(4)]
        >>> exchanges = [
        ...     lockstep([(all_ranks(4), reducer.reduce(torch.full((100,), float(rank)), state))])
        ...     for rank, state in enumerate(states)
        ... ]
        >>> results = cluster.run(exchanges)
        >>> cluster.meters[0].payload_bytes, cluster.meters[0].link_bytes  # 100 entries of 2 bytes
        (200, 300)
    """

    def __init__(self, ranks: int) -> None:
        if ranks < 1:
            raise ValueError(f"Simulated takes 1 rank or more, not {ranks!r}")
        self.size = ranks
        self.meters = [Meter() for _ in range(ranks)]

    def run(self, exchanges: Sequence[Rounds]) -> list[Any]:
        """Run all exchanges to their end; returns their results, by rank."""
        if len(exchanges) != self.size:
            raise ValueError(f"{len(exchanges)} exchanges were given for {self.size} ranks")
        shared: defaultdict[RoundKey, Shared] = defaultdict(dict)
        ranks = [rounds(exchange, r, self.size, self.meters[r], shared) for r, exchange in enumerate(exchanges)]
        mailboxes, results = _Mailboxes(), {}
        received: dict[int, dict[int, Tensor] | None] = dict.fromkeys(range(self.size))
        while received:
            for rank, delivered in received.items():
                try:
                    mailboxes.take(rank, ranks[rank].send(delivered))  # type: ignore[arg-type]  # None starts it
                except StopIteration as end:
                    results[rank] = end.value
            received = mailboxes.deliver()  # type: ignore[assignment]  # None is for the start
        mailboxes.check_empty(results)
        return [results[rank] for rank in range(self.size)]


class _Delivered(NamedTuple):
    buffer: Tensor
    headers: "tuple[_Header, ...]"  # of its messages that go to some ranks only
    post: Post


class _Mailboxes:
    """Holds sent buffers in order until they are received, and compares what sender and receiver expect."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Post, list[tuple[RoutedMessage, _Header]]]] = {}
        self.buffers: defaultdict[tuple[int, int], deque[_Delivered]] = defaultdict(deque)  # by sender and receiver
        self.first: dict[RoundKey, tuple[int, tuple[_Header, ...]]] = {}  # the rank that posted first, and its headers
        self.counts: Counter[tuple[int, tuple[int, ...]]] = Counter()

    def take(self, rank: int, post: Post) -> None:
        messages = [(message, _Header.of(message)) for message in post.messages]
        to_some = [(message, header) for message, header in messages if not _is_to_all(message, post)]
        self._compare_with_first(rank, post, tuple(h for message, h in messages if _is_to_all(message, post)))
        # Copies, as a network makes them: the sender may change its tensors in place afterwards.
        copies = {id(buffer): buffer.clone() for buffer in post.outgoing.values()}
        for receiver, buffer in post.outgoing.items():
            headers = tuple(header for message, header in to_some if receiver in message.receivers)
            self.buffers[rank, receiver].append(_Delivered(copies[id(buffer)], headers, post))
        self.waiting[rank] = post, to_some

    def deliver(self) -> dict[int, dict[int, Tensor]]:
        """The received buffers of each rank for which all incoming buffers have been sent."""
        ready = [rank for rank, (post, _) in self.waiting.items() if all(self.buffers[r, rank] for r in post.incoming)]
        return {rank: self._delivered(rank, *self.waiting.pop(rank)) for rank in ready}

    def _delivered(self, rank: int, post: Post, messages: "list[tuple[RoutedMessage, _Header]]") -> dict[int, Tensor]:
        received = {}
        for other, nbytes in post.incoming.items():
            delivered = self.buffers[other, rank].popleft()
            expected = tuple(header for message, header in messages if other in message.senders)
            _compare(delivered.headers, expected, f"rank {other} sends {{}} to rank {rank}, which expects {{}}")
            sent = delivered.buffer.nbytes
            if sent != nbytes:
                raise LockStepError(f"rank {other} sends {sent} bytes to rank {rank}, which expects {nbytes}")
            received[other] = delivered.buffer
        return received

    def _compare_with_first(self, rank: int, post: Post, headers: "tuple[_Header, ...]") -> None:
        """Compare messages to all members of a round, also between ranks that exchange no buffer."""
        key = (post.members, self.counts[rank, post.members])
        self.counts[rank, post.members] += 1
        first, theirs = self.first.setdefault(key, (rank, headers))
        _compare(headers, theirs, f"rank {rank} sends {{}} where rank {first} sends {{}}")

    def check_empty(self, results: Mapping[int, Any]) -> None:
        """LockStepError if a sent buffer was not received, or if a rank still waits."""
        for (rank, other), buffers in self.buffers.items():
            if buffers and other in results:
                raise LockStepError(_finished(other, rank, buffers[0].post))
        for rank, (post, _) in self.waiting.items():
            missing = min(r for r in post.incoming if not self.buffers[r, rank])
            if missing in results:
                raise LockStepError(_finished(missing, rank, post))
            raise LockStepError(f"rank {rank} waits for rank {missing}, which waits for others")


def _is_to_all(message: RoutedMessage, post: Post) -> bool:
    peers = message.envelope.peers
    return peers.receivers is None and len(peers.weights) == len(post.members)


def _finished(rank: int, other: int, post: Post) -> str:
    sent = next((str(_Header.of(message)) for message in post.messages), "nothing")
    return f"rank {rank} has finished, while rank {other} sends {sent}"


class _Header(NamedTuple):
    """The properties of a message that must be equal on all ranks."""

    codec: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    seed: int
    route: Route
    topic: str
    peers: Peers | None  # None if each rank has its own

    @classmethod
    def of(cls, message: RoutedMessage) -> "_Header":
        peers, m = message.envelope
        shared = peers if peers.receivers is None else None
        return cls(_notation(m.codec), tuple(m.tensor.shape), m.tensor.dtype, m.seed, m.route, peers.topic, shared)

    def __str__(self) -> str:
        weights = "" if self.peers is None else ", ".join(f"{weight:.4g}" for _, weight in self.peers.weights)
        tensor = f"a {self.dtype} tensor of shape {self.shape} by {self.route} through {self.codec}"
        return f"{tensor} with seed {self.seed}{weights and ', weights ' + weights}, on {self.topic!r}"


@lru_cache(maxsize=256)
def _notation(codec: Codec) -> str:
    return repr(codec)


def _compare(sent: Sequence[_Header], expected: Sequence[_Header], problem: str) -> None:
    if sent != expected:
        first, second = next((a, b) for a, b in zip_longest(sent, expected) if a != b)
        raise LockStepError(problem.format(first or "nothing", second or "nothing"))
