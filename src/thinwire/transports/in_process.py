"""Ranks that are threads of one process. Each gives the same bits as in a process of its own."""

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
Channel = tuple[tuple[int, ...], int]  # the ranks of a group, and the number of the channel between them


class StoppedError(PeerLostError):
    """A rank waits for a message that can no longer arrive."""


class InProcessCluster:
    """All ranks of a training, as threads of one process.

    Ranks take turns: each runs until it waits for a message. Then the process's random generators and `__main__` are
    swapped for those of the next rank. So each rank has its own, as in a process of its own, and computes the same
    bits. Up to `max_running` ranks may run at once if none of them uses the global random generators.

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
            raise ValueError(f"InProcessCluster takes 1 rank or more, not {size!r}")
        self.size = size
        self.max_running = 1
        self.operations: dict[int, str] = {}  # what each rank is about to run, for error messages
        self.exchange_seconds = [0.0] * size  # CPU seconds that each rank's thread has spent in exchanges
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._random_states = [RandomState.fresh() for _ in range(size)]
        self._main_modules = [sys.modules["__main__"]] * size  # the script, if each rank runs one
        self._buffers: defaultdict[tuple[Channel, int, int], deque[Tensor]] = defaultdict(deque)  # sender, receiver
        self._waiting: dict[int, tuple[Channel, list[int]]] = {}  # the ranks that each waiting rank waits for
        self._stopped: dict[int, str] = {}  # why, by rank
        self._aborted: dict[tuple[Channel, int], str] = {}  # why a rank sends nothing more on a channel
        self._interrupted = False
        self._deadlock = ""  # its description, once there is one

    def run(self, function: Callable[[], Result]) -> list[Result]:
        """Run a function on each rank; returns the results. In it, `current_transport()` is the rank's transport.

        If it raises on a rank, ranks that wait for that one raise as well, and the first error is raised here.
        """
        for previous in (self._buffers, self._waiting, self._stopped, self._aborted, self.operations):
            previous.clear()
        self._interrupted, self._deadlock = False, ""
        results: dict[int, Result] = {}
        errors: dict[int, BaseException] = {}  # in the order in which ranks stopped

        def run_rank(rank: int) -> None:
            self._begin_turn(rank)
            token = _current.set(InProcessTransport(self, rank))
            why = "it has finished"
            try:
                # Run backward on this thread. Autograd's own threads are shared by all ranks: one that waits for a
                # message would block the others.
                with torch.autograd.set_multithreading_enabled(False):
                    results[rank] = function()
            except BaseException as error:  # of any kind: other ranks must be informed
                errors[rank] = error
                why = f"{type(error).__name__}: {error}".rstrip(": ")
            finally:
                _current.reset(token)
                self._end(rank, why)

        threads = [
            threading.Thread(target=run_rank, args=(r,), name=f"rank {r}", daemon=True) for r in range(self.size)
        ]
        self._main_modules = [sys.modules["__main__"]] * self.size
        with _process_state_restored():
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
        """Send the outgoing buffers, and wait for the incoming ones."""
        with self._changed:
            if self._interrupted:
                raise StoppedError(INTERRUPTED)
            for receiver, buffer in outgoing.items():
                self._buffers[channel, rank, receiver].append(buffer)
            self._changed.notify_all()
        self._wait_for(channel, rank, list(incoming))
        with self._changed:
            received = {sender: self._buffers[channel, sender, rank].popleft() for sender in incoming}
        for sender, buffer in received.items():
            if buffer.nbytes != incoming[sender]:
                expected = incoming[sender]
                raise LockStepError(
                    f"rank {sender} sends {buffer.nbytes} bytes to rank {rank}, which expects {expected}"
                )
        return received

    def abort(self, channel: Channel, rank: int, reason: str) -> None:
        """Stop a rank on one channel: ranks that wait for it there raise."""
        with self._changed:
            self._aborted.setdefault((channel, rank), reason)
            self._changed.notify_all()

    def set_max_running(self, max_running: int) -> None:
        """Let this number of ranks run at once. From now on, none may use the global random generators.

        One rank calls it while all others wait.
        """
        with self._changed:
            self._random_states = [RandomState.now()] * self.size
            self.max_running = max_running
            self._changed.notify_all()

    def _begin_turn(self, rank: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._running) < self.max_running)
            self._running.add(rank)
            if self.max_running == 1:
                self._random_states[rank].put()
                sys.modules["__main__"] = self._main_modules[rank]  # where pickle looks up what a script defines

    def _end_turn(self, rank: int) -> None:
        now = RandomState.now()
        with self._changed:
            if self.max_running > 1 and not torch.equal(now.torch, self._random_states[rank].torch):
                raise ValueError(
                    "a rank used the global random generator while other ranks ran in the same process, so their "
                    "random numbers depend on each other: use --transport processes, or let ranks take turns"
                )
            self._random_states[rank] = now
            self._main_modules[rank] = sys.modules["__main__"]
            self._running.discard(rank)
            self._changed.notify_all()

    def _end(self, rank: int, why: str) -> None:
        with self._changed:
            self._stopped[rank] = why
            self._running.discard(rank)
            self._changed.notify_all()

    def _wait_for(self, channel: Channel, rank: int, senders: list[int]) -> None:
        missing = [sender for sender in senders if not self._buffers[channel, sender, rank]]
        if not missing:
            return
        self._end_turn(rank)
        with self._changed:
            self._waiting[rank] = channel, senders
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_ready(rank) or bool(self._why_stuck(rank)))
            why_stuck = "" if self._is_ready(rank) else self._why_stuck(rank)
            del self._waiting[rank]
        self._begin_turn(rank)
        if why_stuck:
            raise StoppedError(why_stuck)

    def _is_ready(self, rank: int) -> bool:
        channel, senders = self._waiting[rank]
        return all(self._buffers[channel, sender, rank] for sender in senders)

    def _why_stuck(self, rank: int) -> str:
        """Why a rank waits in vain: a rank that it waits for has stopped, or all ranks wait. Empty if it does not."""
        if self._interrupted:
            return INTERRUPTED
        channel, senders = self._waiting[rank]
        missing = [sender for sender in senders if not self._buffers[channel, sender, rank]]
        reasons = {r: self._aborted.get((channel, r)) or self._stopped.get(r) for r in missing}
        stopped = [f"rank {channel[0].index(r)} has stopped: {reason}" for r, reason in reasons.items() if reason]
        if stopped:
            return "; ".join(stopped)
        all_wait = len(self._waiting.keys() | self._stopped.keys()) == self.size
        if all_wait and not any(map(self._is_ready, self._waiting)):
            operations = "".join(
                f"; rank {r} in {self.operations[r]}" for r in sorted(self._waiting) if r in self.operations
            )
            self._deadlock = (
                self._deadlock or f"rank {rank} waits for rank {missing[0]}, which waits for others{operations}"
            )
        return self._deadlock

    def _interrupt(self) -> None:
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()


class InProcessTransport(Transport):
    """The transport of a rank that is a thread of an `InProcessCluster`."""

    def __init__(
        self,
        cluster: InProcessCluster,
        global_rank: int,
        ranks: tuple[int, ...] | None = None,
        opened: Counter[Any] | None = None,
    ):
        self.cluster, self._global_rank = cluster, global_rank
        self._ranks = tuple(range(cluster.size)) if ranks is None else ranks
        self._opened: Counter[Any] = Counter() if opened is None else opened  # this rank's channels so far, by group
        self._channel: Channel = self._ranks, self._opened[self._ranks]
        self._opened[self._ranks] += 1
        self.rank, self.size = self._ranks.index(global_rank), len(self._ranks)
        self.original_ranks = tuple(range(self.size))
        self.device, self.meter = torch.device("cpu"), Meter()

    @property
    def timeout(self) -> float:
        return inf  # a rank that has stopped is detected at once

    @property
    def ranks(self) -> tuple[int, ...]:
        return self._ranks

    def deliver(self, post: Post) -> dict[int, Tensor]:
        caller = current_transport()
        if caller is not None and caller.cluster is self.cluster and caller._global_rank != self._global_rank:
            raise RuntimeError(
                f"rank {caller._global_rank} uses the transport of rank {self._global_rank}: ranks in one process "
                "share imported modules, so create a Replicator or a handle in the script itself, and not in a module "
                "that it imports"
            )
        # Copies, as a network makes them: the sender may change its tensors in place afterwards.
        copies = {id(buffer): buffer.clone() for buffer in post.outgoing.values()}
        outgoing = {self._ranks[r]: copies[id(buffer)] for r, buffer in post.outgoing.items()}
        incoming = {self._ranks[r]: nbytes for r, nbytes in post.incoming.items()}
        received = self.cluster.exchange(self._channel, self._global_rank, outgoing, incoming)
        by_rank = {self._ranks.index(r): buffer for r, buffer in received.items()}
        return {r: post.into[r].copy_(buffer) if r in post.into else buffer for r, buffer in by_rank.items()}

    def run(self, exchange: Rounds, meter: Meter | None = None) -> Any:
        start = time.thread_time()
        try:
            return super().run(exchange, meter)
        finally:
            self.cluster.exchange_seconds[self._global_rank] += time.thread_time() - start

    def duplicate(self, device: torch.device | None = None, timeout: float | None = None) -> "InProcessTransport":
        transport = InProcessTransport(self.cluster, self._global_rank, self._ranks, self._opened)
        transport.device = device or self.device
        return transport

    def subgroup(self, ranks: tuple[int, ...]) -> "InProcessTransport":
        return InProcessTransport(self.cluster, self._global_rank, tuple(self._ranks[r] for r in ranks), self._opened)

    def queue(self) -> Queue:
        return ImmediateQueue()

    def set_operation(self, operation: str) -> None:
        super().set_operation(operation)
        self.cluster.operations[self._global_rank] = operation

    def abort(self, reason: str) -> None:
        self.cluster.abort(self._channel, self._global_rank, reason)

    def close(self) -> None:
        pass


_current: ContextVar[InProcessTransport | None] = ContextVar("thinwire_rank", default=None)


def current_transport() -> InProcessTransport | None:
    """The transport of the rank that runs in this thread; None outside of an `InProcessCluster`."""
    return _current.get()


@contextmanager
def _process_state_restored() -> Iterator[None]:
    """Restore the process's random generators and `__main__` at the end."""
    random_state, main = RandomState.now(), sys.modules["__main__"]
    try:
        yield
    finally:
        random_state.put()
        sys.modules["__main__"] = main
