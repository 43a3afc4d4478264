"""The interface of transports: they run exchanges between ranks, wherever these are."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ..core import Rounds
from .meter import Meter
from .rounds import Post, rounds
from .worker import Queue


class Transport(ABC):
    """One rank's connection to a group of ranks.

    Each transport has a channel of its own, so its messages never mix with those of another. Opening one is collective:
    all ranks of the group must do it, in the same order.
    """

    rank: int
    size: int
    original_ranks: tuple[int, ...]  # of the ranks still in the group, their numbers before any rank failed
    device: torch.device  # where messages are sent from and received to
    meter: Meter
    operation: str = ""  # that this rank is about to run, for error messages

    @property
    @abstractmethod
    def timeout(self) -> float:
        """Seconds that a rank may take to answer."""

    @property
    @abstractmethod
    def ranks(self) -> tuple[int, ...]:
        """The global ranks of this group."""

    @abstractmethod
    def deliver(self, post: Post) -> dict[int, Tensor]:
        """Send the outgoing buffers and wait for the incoming ones, to and from all ranks at once."""

    @abstractmethod
    def duplicate(self, device: torch.device | None = None, timeout: float | None = None) -> "Transport":
        """A transport for the same ranks, with a channel of its own. Collective."""

    @abstractmethod
    def subgroup(self, ranks: tuple[int, ...]) -> "Transport":
        """A transport for some of the ranks, of which this is one. Collective for these ranks."""

    @abstractmethod
    def queue(self) -> Queue:
        """The queue that runs this rank's exchanges in order."""

    def set_operation(self, operation: str) -> None:
        """Record what this rank is about to run, for error messages."""
        self.operation = operation

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Stop this rank, and report the reason to ranks that wait for it."""

    @abstractmethod
    def close(self) -> None:
        """Release the channel: nothing more is sent on it."""

    def run(self, exchange: Rounds, meter: Meter | None = None) -> Any:
        """Run an exchange to its end; returns its result."""
        meter = meter or self.meter
        posts = rounds(exchange, self.rank, self.size, meter, defaultdict(dict))
        received: Any = None
        while True:
            try:
                post = posts.send(received)
            except StopIteration as end:
                return end.value
            start = perf_counter()
            received = self.deliver(post)
            meter.exchange_seconds += perf_counter() - start

    def deliver_counted(self, post: Post) -> dict[int, Tensor]:
        """Deliver and count a post that belongs to no exchange."""
        meter, sizes = self.meter, {r: buffer.nbytes for r, buffer in post.outgoing.items()}
        meter.rounds += 1
        meter.count_payload("", max(sizes.values(), default=0))
        meter.count_carried(sizes, post.incoming)
        start = perf_counter()
        received = self.deliver(post)
        meter.exchange_seconds += perf_counter() - start
        return received

    def gather(self, data: bytes) -> list[bytes]:
        """All-gather bytes, in the order of the ranks. Not counted by the meter."""
        own = torch.frombuffer(bytearray(data or b" "), dtype=torch.uint8).to(self.device)
        length = torch.tensor([own.numel()]).view(torch.uint8).to(self.device)
        others = [r for r in range(self.size) if r != self.rank]
        lengths = self.deliver(Post(dict.fromkeys(others, length), dict.fromkeys(others, 8), {}))
        sizes = {r: int(n.cpu().view(torch.int64)) for r, n in lengths.items()}
        received = self.deliver(Post(dict.fromkeys(others, own), sizes, {}))
        return [data if r == self.rank else bytes(received[r].tolist()) for r in range(self.size)]

    def broadcast(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Overwrite the tensors with those of the source, in place. Not counted by the meter."""
        for tensor in tensors:
            target = tensor.detach()
            if self.rank == source:
                buffer = target.contiguous().flatten().view(torch.uint8).to(self.device)
                self.deliver(Post({r: buffer for r in range(self.size) if r != source}, {}, {}))
            else:
                received = self.deliver(Post({}, {source: target.nbytes}, {}))[source]
                target.copy_(received.view(target.dtype).view(target.shape))
