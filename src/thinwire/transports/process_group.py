"""The transport between processes, over point-to-point operations of torch.distributed."""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .failure_agreement import DISCONNECTED, STALLED, FailureAgreement, FailureReport, PeerLostError, RegroupPlan
from .meter import Meter
from .rounds import Post
from .transport import Transport
from .worker import Queue, Worker

TIMED_OUT = "Timed out"  # in gloo's error about a rank that does not answer in time
GAVE_UP = "Application timeout"  # in gloo's errors about all other ranks from then on
PROBE_TAG = 1  # nothing is ever sent with it
Op = tuple[Callable[..., dist.Work | None], Tensor, int]  # dist.isend or dist.irecv, the buffer, the peer


class Unreachable(RuntimeError):
    """Some ranks could not be reached."""

    def __init__(self, problems: dict[int, str]) -> None:
        super().__init__("; ".join(f"rank {rank}: {text}" for rank, text in problems.items()))
        first = {r: text for r, text in problems.items() if GAVE_UP not in text} or problems
        self.ranks = {rank: STALLED if TIMED_OUT in text else DISCONNECTED for rank, text in first.items()}


class ProcessGroupTransport(Transport):
    """A transport for the ranks of a torch.distributed process group.

    It creates a process group of its own, so its messages never mix with the user's collectives. All ranks of the given
    group (by default, all ranks) must create one.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        device: torch.device | None = None,
        timeout: float | None = None,
        ranks: tuple[int, ...] | None = None,  # of the group; None: all of it
        backend: str | None = None,  # None: the group's
    ) -> None:
        if not dist.is_initialized():
            raise RuntimeError(
                "thinwire needs torch.distributed: launch the script with torchrun and call "
                "torch.distributed.init_process_group() first"
            )
        self._spec = _spec_of(group, timeout, ranks, backend)
        if timeout is not None:
            dist.barrier(group)  # ranks may start further apart than their timeout will be
        self.device = device or torch.device("cpu")
        self._join()
        self.original_ranks = tuple(range(self.size))
        self.meter = Meter()

    @property
    def group(self) -> dist.ProcessGroup:
        group = self._group()
        if group is None:
            raise RuntimeError("thinwire's process group has been destroyed")
        return group

    def _join(self) -> None:
        self._group, self._closed = _own_group(self._spec), False
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.gather(b"")  # a rank that exits at once would disconnect from ranks that still connect

    @property
    def timeout(self) -> float:
        """Seconds that a rank may take to answer."""
        return (self._spec.timeout or dist.default_pg_timeout).total_seconds()

    @property
    def ranks(self) -> tuple[int, ...]:
        return self._spec.ranks

    def deliver(self, post: Post) -> dict[int, Tensor]:
        # Each rank starts with the next one, so that not all ranks send to the same one first.
        outgoing, incoming = (
            sorted(some, key=lambda r: (r - self.rank) % self.size) for some in (post.outgoing, post.incoming)
        )
        received = {
            r: post.into[r] if r in post.into else torch.empty(post.incoming[r], dtype=torch.uint8, device=self.device)
            for r in incoming
        }
        # Receives first: gloo requests what it receives on the connection that it sends on. A request that waits behind
        # a long message would make the two directions take turns.
        receives: list[Op] = [(dist.irecv, received[r], r) for r in incoming]
        self._run_ops(receives + [(dist.isend, post.outgoing[r].contiguous(), r) for r in outgoing])
        return received

    def _run_ops(self, ops: list[Op]) -> None:
        """Run all operations, also after one has failed, so that the error names every rank that cannot be reached."""
        group, started = self.group, list[tuple[int, dist.Work]]()
        problems: dict[int, str] = {}
        batched = self._spec.backend == "nccl"  # which needs all operations of a round in one batch
        for batch in [ops] if batched and ops else [[op] for op in ops]:
            peer = batch[0][2]
            try:
                started += [(peer, work) for work in _start(batch, group, batched)]
            except RuntimeError as error:
                problems.setdefault(peer, str(error))
        for peer, work in started:
            try:
                work.wait()
            except RuntimeError as error:
                problems.setdefault(peer, str(error))
        if problems:
            raise Unreachable(problems)

    def broadcast(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), group=self.group, group_src=source)

    def duplicate(self, device: torch.device | None = None, timeout: float | None = None) -> "ProcessGroupTransport":
        return ProcessGroupTransport(
            self.group, device or self.device, timeout, backend=_backend_for(device or self.device)
        )

    def subgroup(self, ranks: tuple[int, ...]) -> "ProcessGroupTransport":
        return ProcessGroupTransport(self.group, self.device, ranks=ranks, backend=_backend_for(self.device))

    def queue(self) -> Queue:
        return Worker()

    def abort(self, reason: str) -> None:
        if self.size > 1:
            agreement = self.disconnect(FailureReport(stopped=reason))
            agreement.confirm()  # other ranks may stop as well, and wait until this one has read their reports
            agreement.wait([])

    def disconnect(self, report: FailureReport) -> FailureAgreement:
        """Publish a report in the store and close all connections, so that ranks that wait for this one read it."""
        if not report.stopped:
            report = replace(report, unreachable=self._closed_connections() | report.unreachable)
        store, ranks = dist.distributed_c10d._get_default_store(), "-".join(map(str, self._spec.ranks))
        topic = f"thinwire/{self._spec.backend}/{ranks}/{getattr(self.group, 'group_name', '')}"
        agreement = FailureAgreement(store, topic, self.rank, self.size, self.timeout)
        agreement.publish(report)
        dist.destroy_process_group(self.group)
        self._closed = True
        return agreement

    def _closed_connections(self) -> dict[int, str]:
        """Ranks that died or disconnected.

        They may be ranks with which this one did not exchange: if a machine fails, some of its ranks may have exchanged
        with each other only, so no survivor would report them.
        """
        closed: dict[int, str] = {}
        for r in range(self.size) if self._spec.backend == "gloo" else ():
            try:
                if r != self.rank:
                    dist.irecv(torch.empty(1), group=self.group, group_src=r, tag=PROBE_TAG)
            except RuntimeError as error:
                if GAVE_UP not in str(error) and TIMED_OUT not in str(error):  # else this rank has closed it
                    closed[r] = DISCONNECTED
        return closed

    def regroup(self, plan: RegroupPlan) -> None:
        """Continue with the survivors, in a new process group."""
        self._spec = self._spec._replace(ranks=tuple(self._spec.ranks[r] for r in plan.survivors))
        self.original_ranks = tuple(self.original_ranks[r] for r in plan.survivors)
        try:
            self._join()
        except (RuntimeError, ValueError) as error:
            raise PeerLostError(
                f"ranks failed, and the other {len(self.original_ranks)} could not create a process group: one more "
                f"may have failed meanwhile, or a second handle in this process has created the same group ({error})"
            ) from error
        self.meter.original_ranks = self.original_ranks

    def close(self) -> None:
        """Release the process group; the next transport for the same ranks takes it over."""
        if self._group() is not None and not self._closed:
            self._closed = True
            _idle.setdefault(self._spec, []).append(self._group)


def _start(ops: list[Op], group: dist.ProcessGroup, batched: bool) -> list[dist.Work]:
    if batched:
        return dist.batch_isend_irecv([dist.P2POp(op, x, group=group, group_peer=peer) for op, x, peer in ops])
    ((op, x, peer),) = ops
    # Directly: it is faster than a batch of one.
    work = op(x, group=group, **{"group_src" if op is dist.irecv else "group_dst": peer})
    assert work is not None, "this rank is in the group"
    return [work]


# A weak reference to a process group that torch owns. A strong one would keep the group's threads alive after
# destroy_process_group(), and they abort the process when it exits.
GroupRef = weakref.ref[dist.ProcessGroup]


class GroupSpec(NamedTuple):
    """What defines a process group; groups of equal specs can replace each other."""

    ranks: tuple[int, ...]  # global
    backend: str
    timeout: timedelta | None  # None: torch's default


# Process groups of thinwire that are not in use. They are kept for reuse: torch gives a new group of the same ranks the
# name of a destroyed one, and would find the old addresses under that name.
_idle: dict[GroupSpec, list[GroupRef]] = {}


def _spec_of(
    group: dist.ProcessGroup | None, timeout: float | None, ranks: tuple[int, ...] | None, backend: str | None
) -> GroupSpec:
    wait = _timeout(group) if timeout is None else timedelta(seconds=timeout)
    global_ranks = dist.get_process_group_ranks(group)
    members = global_ranks if ranks is None else [global_ranks[r] for r in ranks]
    own_backend = dist.get_backend(group)
    return GroupSpec(tuple(members), own_backend if backend is None else backend, wait)


def _backend_for(device: torch.device) -> str:
    """The backend that sends tensors on this device."""
    return "nccl" if device.type == "cuda" and dist.is_nccl_available() else "gloo"


def _timeout(group: dist.ProcessGroup | None) -> timedelta | None:
    """The timeout of the user's process group, if torch exposes it; it has no public API for that."""
    try:
        backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
        timeout: timedelta = backend.options._timeout
    except (AttributeError, RuntimeError):
        return None
    return timeout


def _own_group(spec: GroupSpec) -> GroupRef:
    """A process group that is not in use, or a new one."""
    alive = [reference for reference in _idle.pop(spec, []) if reference() is not None]
    if alive:
        # By name, the same on all ranks: they may have released their groups in different orders.
        first, *others = sorted(alive, key=lambda reference: getattr(reference(), "group_name", ""))
        _idle[spec] = others
        return first
    # torch names a group of all ranks by a counter that all ranks share. With use_local_synchronization, it names the
    # group by the number of groups that each member is in, so these numbers must be equal.
    is_subset = len(spec.ranks) < dist.get_world_size()
    group = dist.new_group(
        list(spec.ranks), backend=spec.backend, timeout=spec.timeout, use_local_synchronization=is_subset
    )
    return weakref.ref(group)
