"""What carries talks between ranks, wherever these are."""

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
    """One rank's way to the others. What it says is said on a channel of its own, which all of them have to open."""

    rank: int
    size: int
    names: tuple[int, ...]  # the ranks of those who are here, when all were
    device: torch.device  # where messages are sent from and received to
    meter: Meter
    doing: str = ""

    @property
    @abstractmethod
    def timeout(self) -> float:
        """How many seconds a rank may take to answer."""

    @property
    @abstractmethod
    def ranks(self) -> tuple[int, ...]:
        """Those who speak here, by the numbers that they have among all."""

    @abstractmethod
    def deliver(self, post: Post) -> dict[int, Tensor]:
        """Send what goes out and wait for what comes in, to and from all ranks at once."""

    @abstractmethod
    def another(self, device: torch.device | None = None, timeout: float | None = None) -> "Transport":
        """One between the same ranks, with a channel of its own."""

    @abstractmethod
    def among(self, ranks: tuple[int, ...]) -> "Transport":
        """One between some of the ranks, of which this is one. All of those have to ask for it."""

    @abstractmethod
    def queue(self) -> Queue:
        """From which everything is said."""

    def note(self, doing: str) -> None:
        """What this rank is about to do, for errors that tell of it where that can be known."""
        self.doing = doing

    @abstractmethod
    def leave(self, why: str) -> None:
        """Stop, and let those know why who wait for this rank."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more is said here."""

    def run(self, talk: Rounds, meter: Meter | None = None) -> Any:
        """Hold a talk to its end; returns its outcome."""
        meter = meter or self.meter
        steps = rounds(talk, self.rank, self.size, meter, defaultdict(dict))
        heard: Any = None
        while True:
            try:
                post = steps.send(heard)
            except StopIteration as end:
                return end.value
            start = perf_counter()
            heard = self.deliver(post)
            meter.exchange_seconds += perf_counter() - start

    def counted(self, post: Post) -> dict[int, Tensor]:
        """Deliver what is no part of a talk, and count it."""
        meter, sizes = self.meter, {r: said.nbytes for r, said in post.outgoing.items()}
        meter.rounds += 1
        meter.count_payload("", max(sizes.values(), default=0))
        meter.count_carried(sizes, post.incoming)
        start = perf_counter()
        heard = self.deliver(post)
        meter.exchange_seconds += perf_counter() - start
        return heard

    def gather(self, data: bytes) -> list[bytes]:
        """What every rank gives, in the order of the ranks. It is not counted."""
        mine = torch.frombuffer(bytearray(data or b" "), dtype=torch.uint8).to(self.device)
        length = torch.tensor([mine.numel()]).view(torch.uint8).to(self.device)
        others = [r for r in range(self.size) if r != self.rank]
        lengths = self.deliver(Post(dict.fromkeys(others, length), dict.fromkeys(others, 8), {}))
        sizes = {r: int(n.cpu().view(torch.int64)) for r, n in lengths.items()}
        heard = self.deliver(Post(dict.fromkeys(others, mine), sizes, {}))
        return [data if r == self.rank else bytes(heard[r].tolist()) for r in range(self.size)]

    def broadcast(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Overwrite these tensors with the source's, in place. It is not counted."""
        for tensor in tensors:
            there = tensor.detach()
            if self.rank == source:
                said = there.contiguous().flatten().view(torch.uint8).to(self.device)
                self.deliver(Post({r: said for r in range(self.size) if r != source}, {}, {}))
            else:
                heard = self.deliver(Post({}, {source: there.nbytes}, {}))[source]
                there.copy_(heard.view(there.dtype).view(there.shape))
