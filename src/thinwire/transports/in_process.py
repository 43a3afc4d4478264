"""Ranks that are threads of one process, each as if it were alone there."""

import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core import Rounds
from .failure_agreement import PeerLostError
from .meter import Meter
from .random_state import RandomState
from .rounds import Post
from .simulated import LockStepError
from .transport import Transport
from .worker import ImmediateQueue, Queue

INTERRUPTED = "the training was interrupted"
Result = TypeVar("Result")
Channel = tuple[tuple[int, ...], int]  # the ranks that speak on it, and which of theirs it is


class StoppedError(PeerLostError):
    """What a rank waits for cannot come any more."""


class InProcessCluster:
    """All ranks of a training in one process.

    They take turns: a rank runs until it waits for others. So each has random numbers of its own, as it would have in a
    process of its own, and all gives the same bits as there. More than one may run `at_once` if none of them draws
    from the generators that the process has for all.

    Examples:
        >>> import torch
        >>> import thinwire
        >>> from thinwire.simulate import InProcessCluster
        >>> batches = iter(torch.randn(4, 8, 4))  # one for each rank
        >>> def train():
        ...     model = torch.nn.Linear(4, 4)
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     handle = thinwire.attach(model, "dpsgd", optimizer=optimizer)
        ...     model(next(batches)).square().mean().backward()
        ...     optimizer.step()  # then averages parameters with those of two neighbors
        ...     return model.weight.sum().item(), handle.average().weight.sum().item()
        >>> results = InProcessCluster(4).run(train)
        >>> len({local for local, _ in results}), len({mean for _, mean in results})  # four replicas, one mean
        (4, 1)
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a world has 1 rank or more, not {size!r}")
        self.size = size
        self.at_once = 1
        self.doing: dict[int, str] = {}  # what ranks have said that they are about to do
        self.talked = [0.0] * size  # seconds of each rank's thread that it has spent on talks
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._draws = [RandomState.fresh() for _ in range(size)]
        self._mains = [sys.modules["__main__"]] * size  # the script, if each rank runs one
        self._letters: defaultdict[tuple[Channel, int, int], deque[Tensor]] = defaultdict(deque)
        self._awaits: dict[int, tuple[Channel, list[int]]] = {}  # ranks that wait, and for whom
        self._stopped: dict[int, str] = {}  # why, by rank
        self._left: dict[tuple[Channel, int], str] = {}  # why somebody says nothing more on a channel
        self._interrupted = False
        self._vain = ""  # why nobody can go on

    def run(self, act: Callable[[], Result]) -> list[Result]:
        """What a function returns on each rank, where `here()` is that rank's way to the others.

        If it raises, those who wait for that rank do so too, and the first error is raised here.
        """
        for left in (self._letters, self._awaits, self._stopped, self._left, self.doing):
            left.clear()  # by an earlier run
        self._interrupted, self._vain = False, ""
        results: dict[int, Result] = {}
        errors: dict[int, BaseException] = {}  # in the order in which ranks stopped

        def live(rank: int) -> None:
            self._begin(rank)
            token = _here.set(InProcessTransport(self, rank))
            why = "it has come to its end"
            try:
                # Backward is done by this thread: one that ranks share would wait for one of them, and none go on.
                with torch.autograd.set_multithreading_enabled(False):
                    results[rank] = act()
            except BaseException as error:  # whatever it is, the others have to know
                errors[rank] = error
                why = f"{type(error).__name__}: {error}".rstrip(": ")
            finally:
                _here.reset(token)
                self._end(rank, why)

        threads = [threading.Thread(target=live, args=(r,), name=f"rank {r}", daemon=True) for r in range(self.size)]
        self._mains = [sys.modules["__main__"]] * self.size
        with _kept():
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except BaseException:
                self._interrupt()
                for thread in threads:
                    thread.join()
                raise
        if errors:
            raise next((e for e in errors.values() if not isinstance(e, StoppedError)), next(iter(errors.values())))
        return [results[rank] for rank in range(self.size)]

    def exchange(
        self, channel: Channel, rank: int, outgoing: dict[int, Tensor], incoming: dict[int, int]
    ) -> dict[int, Tensor]:
        """Leave letters, and wait for those that are expected."""
        with self._changed:
            if self._interrupted:
                raise StoppedError(INTERRUPTED)
            for listener, letter in outgoing.items():
                self._letters[channel, rank, listener].append(letter)
            self._changed.notify_all()
        self._await(channel, rank, list(incoming))
        with self._changed:
            heard = {other: self._letters[channel, other, rank].popleft() for other in incoming}
        for other, letter in heard.items():
            if letter.nbytes != incoming[other]:
                expected = incoming[other]
                raise LockStepError(
                    f"rank {other} sends {letter.nbytes} bytes to rank {rank}, which expects {expected}"
                )
        return heard

    def leave(self, channel: Channel, rank: int, why: str) -> None:
        """Those who wait for this rank on a channel wait in vain."""
        with self._changed:
            self._left.setdefault((channel, rank), why)
            self._changed.notify_all()

    def _begin(self, rank: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._running) < self.at_once)
            self._running.add(rank)
            if self.at_once == 1:
                self._draws[rank].put()
                sys.modules["__main__"] = self._mains[rank]  # where pickle looks for what a script defines

    def _pause(self, rank: int) -> None:
        now = RandomState.now()
        with self._changed:
            if self.at_once > 1 and not torch.equal(now.torch, self._draws[rank].torch):
                raise ValueError(
                    "a rank has drawn random numbers while another one ran in the same process, which could not be "
                    "kept apart: use --transport processes, or let ranks take turns"
                )
            self._draws[rank] = now
            self._mains[rank] = sys.modules["__main__"]
            self._running.discard(rank)
            self._changed.notify_all()

    def loosen(self, at_once: int) -> None:
        """Let so many ranks run at once, none of which draws any more. For one rank to say, while all others wait."""
        with self._changed:
            self._draws = [RandomState.now()] * self.size
            self.at_once = at_once
            self._changed.notify_all()

    def _end(self, rank: int, why: str) -> None:
        with self._changed:
            self._stopped[rank] = why
            self._running.discard(rank)
            self._changed.notify_all()

    def _await(self, channel: Channel, rank: int, others: list[int]) -> None:
        missing = [other for other in others if not self._letters[channel, other, rank]]
        if not missing:
            return
        self._pause(rank)
        with self._changed:
            self._awaits[rank] = channel, others
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_ready(rank) or bool(self._why_not(rank)))
            why_not = "" if self._is_ready(rank) else self._why_not(rank)
            del self._awaits[rank]
        self._begin(rank)
        if why_not:
            raise StoppedError(why_not)

    def _is_ready(self, rank: int) -> bool:
        channel, others = self._awaits[rank]
        return all(self._letters[channel, other, rank] for other in others)

    def _why_not(self, rank: int) -> str:
        """Why what a rank waits for cannot come: whom it waits for has stopped, or everybody waits for somebody."""
        if self._interrupted:
            return INTERRUPTED
        channel, others = self._awaits[rank]
        missing = [other for other in others if not self._letters[channel, other, rank]]
        whys = {r: self._left.get((channel, r)) or self._stopped.get(r) for r in missing}
        stopped = [f"rank {channel[0].index(r)} has stopped: {why}" for r, why in whys.items() if why]
        if stopped:
            return "; ".join(stopped)
        if len(self._awaits.keys() | self._stopped.keys()) == self.size and not any(map(self._is_ready, self._awaits)):
            doing = "".join(f"; rank {r} in {self.doing[r]}" for r in sorted(self._awaits) if r in self.doing)
            self._vain = self._vain or f"rank {rank} waits for rank {missing[0]}, which waits for others{doing}"
        return self._vain

    def _interrupt(self) -> None:
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()


class InProcessTransport(Transport):
    """A rank's way to others in the same process."""

    def __init__(
        self, world: InProcessCluster, me: int, ranks: tuple[int, ...] | None = None, opened: Counter[Any] | None = None
    ):
        self.world, self._me = world, me
        self._ranks = tuple(range(world.size)) if ranks is None else ranks
        self._opened: Counter[Any] = Counter() if opened is None else opened  # channels that this rank has had
        self._channel: Channel = self._ranks, self._opened[self._ranks]
        self._opened[self._ranks] += 1
        self.rank, self.size = self._ranks.index(me), len(self._ranks)
        self.names = tuple(range(self.size))
        self.device, self.meter = torch.device("cpu"), Meter()

    @property
    def timeout(self) -> float:
        return inf  # who has stopped is known at once

    @property
    def ranks(self) -> tuple[int, ...]:
        return self._ranks

    def deliver(self, post: Post) -> dict[int, Tensor]:
        caller = here()
        if caller is not None and caller.world is self.world and caller._me != self._me:
            raise RuntimeError(
                f"rank {caller._me} speaks as rank {self._me}: ranks in one process share what modules hold, so make "
                "what speaks (a Replicator, a handle) in the script itself, and not in a module that it imports"
            )
        # Copies, as a wire makes them: who has spoken may go on, and change what it said in place.
        copies = {id(said): said.clone() for said in post.outgoing.values()}
        outgoing = {self._ranks[r]: copies[id(said)] for r, said in post.outgoing.items()}
        heard = self.world.exchange(
            self._channel, self._me, outgoing, {self._ranks[r]: nbytes for r, nbytes in post.incoming.items()}
        )
        found = {self._ranks.index(r): buffer for r, buffer in heard.items()}
        return {r: post.into[r].copy_(buffer) if r in post.into else buffer for r, buffer in found.items()}

    def run(self, talk: Rounds, meter: Meter | None = None) -> Any:
        start = time.thread_time()
        try:
            return super().run(talk, meter)
        finally:
            self.world.talked[self._me] += time.thread_time() - start

    def another(self, device: torch.device | None = None, timeout: float | None = None) -> "InProcessTransport":
        made = InProcessTransport(self.world, self._me, self._ranks, self._opened)
        made.device = device or self.device
        return made

    def among(self, ranks: tuple[int, ...]) -> "InProcessTransport":
        return InProcessTransport(self.world, self._me, tuple(self._ranks[r] for r in ranks), self._opened)

    def queue(self) -> Queue:
        return ImmediateQueue()

    def note(self, doing: str) -> None:
        super().note(doing)
        self.world.doing[self._me] = doing

    def leave(self, why: str) -> None:
        self.world.leave(self._channel, self._me, why)

    def close(self) -> None:
        pass


_here: ContextVar[InProcessTransport | None] = ContextVar("thinwire_rank", default=None)


def here() -> InProcessTransport | None:
    """The way to the others of the rank that this thread is, if it is one of a `InProcessCluster`."""
    return _here.get()


@contextmanager
def _kept() -> Iterator[None]:
    """What the process has for all, as it was before."""
    draws, main = RandomState.now(), sys.modules["__main__"]
    try:
        yield
    finally:
        draws.put()
        sys.modules["__main__"] = main
