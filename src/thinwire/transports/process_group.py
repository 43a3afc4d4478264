"""Real processes over torch.distributed: the one file that knows it."""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from .failure_agreement import GONE, STALLED, Decision, FailureAgreement, Note, PeerLostError
from .meter import Meter
from .rounds import Post
from .transport import Transport
from .worker import Queue, Worker

TIMED_OUT = "Timed out"  # what gloo says of a rank that does not answer in time
GAVE_UP = "Application timeout"  # and of all others from then on
PROBE = 1  # a tag that nothing is ever sent with
Op = tuple[Callable[..., dist.Work | None], Tensor, int]  # dist.isend or dist.irecv, of what, to or from whom


class Unreachable(RuntimeError):
    """Some ranks could not be spoken with."""

    def __init__(self, problems: dict[int, str]) -> None:
        super().__init__("; ".join(f"rank {rank}: {text}" for rank, text in problems.items()))
        first = {r: text for r, text in problems.items() if GAVE_UP not in text} or problems
        self.blamed = {rank: STALLED if TIMED_OUT in text else GONE for rank, text in first.items()}


class ProcessGroupTransport(Transport):
    """Holds talks with the ranks of a torch.distributed group.

    It speaks on a group of its own, so that its messages never mix with the user's collectives; all ranks of the given
    group (by default, of all) must make one.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        device: torch.device | None = None,
        timeout: float | None = None,
        ranks: tuple[int, ...] | None = None,  # of the group's, if not all
        backend: str | None = None,  # if not the group's
    ) -> None:
        if not dist.is_initialized():
            raise RuntimeError(
                "thinwire needs torch.distributed: launch the script with torchrun and call "
                "torch.distributed.init_process_group() first"
            )
        self._kind = _kind(group, timeout, ranks)
        if backend is not None:
            self._kind = self._kind[0], backend, self._kind[2]
        if timeout is not None:
            dist.barrier(group)  # ranks may begin further apart than the time in which they will have to answer
        self.device = device or torch.device("cpu")  # where messages are sent from and received to
        self._join()
        self.names = tuple(range(self.size))  # the ranks of those who are here, when all were
        self.meter = Meter()

    @property
    def group(self) -> dist.ProcessGroup:
        group = self._group()
        if group is None:
            raise RuntimeError("the process group that thinwire speaks in has been destroyed")
        return group

    def _join(self) -> None:
        self._group, self._closed = _own_group(self._kind), False
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.gather(b"")  # whoever is connected first, and ends at once, would hang up on those who still connect

    @property
    def timeout(self) -> float:
        """How many seconds a rank may take to answer."""
        waits = self._kind[2]
        return (waits or dist.default_pg_timeout).total_seconds()

    @property
    def ranks(self) -> tuple[int, ...]:
        return self._kind[0]

    def deliver(self, post: Post) -> dict[int, Tensor]:
        """Send what goes out and wait for what comes in, to and from all ranks at once."""
        # Starting with the next rank, so that not all ranks speak to the same one first.
        outgoing, incoming = (
            sorted(some, key=lambda r: (r - self.rank) % self.size) for some in (post.outgoing, post.incoming)
        )
        heard = {
            r: post.into[r] if r in post.into else torch.empty(post.incoming[r], dtype=torch.uint8, device=self.device)
            for r in incoming
        }
        # Receives first: gloo asks for what it is to receive on the connection that it sends on, and a request that
        # waits behind a long message makes the two directions take turns.
        receives: list[Op] = [(dist.irecv, heard[r], r) for r in incoming]
        self._do(receives + [(dist.isend, post.outgoing[r].contiguous(), r) for r in outgoing])
        return heard

    def _do(self, ops: list[Op]) -> None:
        """Do all that can be done: where a rank cannot be reached, it is known then which."""
        group, begun = self.group, list[tuple[int, dist.Work]]()
        problems: dict[int, str] = {}
        batched = self._kind[1] == "nccl"  # where all ops of a round have to be in one, be they several or not
        for some in [ops] if batched and ops else [[op] for op in ops]:
            peer = some[0][2]
            try:
                begun += [(peer, work) for work in _begin(some, group, batched)]
            except RuntimeError as error:
                problems.setdefault(peer, str(error))
        for peer, work in begun:
            try:
                work.wait()
            except RuntimeError as error:
                problems.setdefault(peer, str(error))
        if problems:
            raise Unreachable(problems)

    def broadcast(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Overwrite these tensors with the source's, in place."""
        for tensor in tensors:
            dist.broadcast(tensor.detach(), group=self.group, group_src=source)

    def another(self, device: torch.device | None = None, timeout: float | None = None) -> "ProcessGroupTransport":
        return ProcessGroupTransport(
            self.group, device or self.device, timeout, backend=_backend_for(device or self.device)
        )

    def among(self, ranks: tuple[int, ...]) -> "ProcessGroupTransport":
        return ProcessGroupTransport(self.group, self.device, ranks=ranks, backend=_backend_for(self.device))

    def queue(self) -> Queue:
        return Worker()

    def leave(self, why: str) -> None:
        if self.size > 1:
            meeting = self.hang_up(Note(left=why))
            meeting.done()  # others may leave as well, and wait for this one to read what they left
            meeting.wait([])

    def hang_up(self, note: Note) -> FailureAgreement:
        """Leave a note, and close all connections, so that whoever waits for this rank goes and reads it."""
        if not note.left:
            note = replace(note, blamed=self._closed_connections() | note.blamed)
        (ranks, backend, _), store = self._kind, dist.distributed_c10d._get_default_store()
        topic = f"thinwire/{backend}/{'-'.join(map(str, ranks))}/{getattr(self.group, 'group_name', '')}"
        meeting = FailureAgreement(store, topic, self.rank, self.size, self.timeout)
        meeting.leave(note)
        dist.destroy_process_group(self.group)
        self._closed = True
        return meeting

    def _closed_connections(self) -> dict[int, str]:
        """Ranks that have hung up or died. Of a machine that is gone, some may have spoken with each other only."""
        found: dict[int, str] = {}
        for r in range(self.size) if self._kind[1] == "gloo" else ():
            try:
                if r != self.rank:
                    dist.irecv(torch.empty(1), group=self.group, group_src=r, tag=PROBE)
            except RuntimeError as error:
                if GAVE_UP not in str(error) and TIMED_OUT not in str(error):  # it is this rank that has closed it then
                    found[r] = GONE
        return found

    def regroup(self, decision: Decision) -> None:
        """Go on with those who are left, in a group of their own."""
        ranks, backend, timeout = self._kind
        self._kind = tuple(ranks[r] for r in decision.survivors), backend, timeout
        self.names = tuple(self.names[r] for r in decision.survivors)
        try:
            self._join()
        except (RuntimeError, ValueError) as error:
            raise PeerLostError(
                f"ranks were lost, and the other {len(self.names)} could not make a group of their own: one more may "
                f"have been lost meanwhile, or a second handle in this process has made theirs ({error})"
            ) from error
        self.meter.names = self.names

    def close(self) -> None:
        """Leave the group to the next one who speaks to the same ranks."""
        if self._group() is not None and not self._closed:
            self._closed = True
            _idle.setdefault(self._kind, []).append(self._group)


def _begin(ops: list[Op], group: dist.ProcessGroup, batched: bool) -> list[dist.Work]:
    if batched:
        return dist.batch_isend_irecv([dist.P2POp(do, x, group=group, group_peer=peer) for do, x, peer in ops])
    ((do, x, peer),) = ops
    # Without the time that a batch of one takes.
    work = do(x, group=group, **{"group_src" if do is dist.irecv else "group_dst": peer})
    assert work is not None, "this rank is in the group"
    return [work]


# A group that torch still holds: a strong reference would keep its threads alive past destroy_process_group(), and they
# abort the process when it exits.
GroupRef = weakref.ref[dist.ProcessGroup]
Kind = tuple[tuple[int, ...], str, timedelta | None]  # ranks, backend, how long it waits

# Groups that were made for thinwire and are not in use. They are kept: torch gives a new group of the same ranks the
# name of one that was destroyed, and finds that one's old addresses under it.
_idle: dict[Kind, list[GroupRef]] = {}


def _kind(group: dist.ProcessGroup | None, timeout: float | None, ranks: tuple[int, ...] | None) -> Kind:
    waits = _timeout(group) if timeout is None else timedelta(seconds=timeout)
    there = dist.get_process_group_ranks(group)
    return tuple(there if ranks is None else [there[r] for r in ranks]), dist.get_backend(group), waits


def _backend_for(device: torch.device) -> str:
    """What carries tensors that are there."""
    return "nccl" if device.type == "cuda" and dist.is_nccl_available() else "gloo"


def _timeout(group: dist.ProcessGroup | None) -> timedelta | None:
    """How long the user's group waits, if it tells: torch has no public name for it."""
    try:
        backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
        waits: timedelta = backend.options._timeout
    except (AttributeError, RuntimeError):
        return None
    return waits


def _own_group(kind: Kind) -> GroupRef:
    ranks, backend, timeout = kind
    alive = [reference for reference in _idle.pop(kind, []) if reference() is not None]
    if alive:
        # By name: ranks may have let go of theirs in different orders.
        first, *others = sorted(alive, key=lambda reference: getattr(reference(), "group_name", ""))
        _idle[kind] = others
        return first
    # A group of all ranks is named by a count that all of them share. For fewer, torch counts the groups that each rank
    # is in, so its members must have joined as many.
    some = len(ranks) < dist.get_world_size()
    return weakref.ref(dist.new_group(list(ranks), backend=backend, timeout=timeout, use_local_synchronization=some))
