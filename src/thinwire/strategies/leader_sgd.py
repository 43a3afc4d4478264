from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Peers, Replica, Reply, Rounds, Strategy, broadcast_from, lockstep
from ..core.outcome import NonFinite, StepResult
from ..core.precision import working
from ..reducers.average import STRIDE
from ..topologies import Grouping, Groups, OneGroup, all_ranks, group_of, part_of, within
from .broadcasts import broadcast
from .independent import Independent
from .units import Unit, check_fuse_below, checked_exchange, units_of

LARGEST = 1e300  # a loss that is not finite counts as this


class LeaderSGDState(NamedTuple):
    step: int
    losses: Tensor  # a ring buffer of the last `window` losses
    seeds: dict[str, int]
    local: dict[str, Tensor]  # the group leader's parameters as last received; empty unless stale_pull is set
    overall: dict[str, Tensor]  # the same for the leader of all ranks


@dataclass(frozen=True, repr=False)
class LeaderSGD(Independent):
    """Leader SGD (LSGD; Teng et al., 2019): local steps; periodically, replicas are pulled to the one with lowest loss.

    The leader is one of the replicas, and only it sends. With groups, each group has a leader too, and is pulled to it
    more often. Losses come from `handle.report_loss(loss)`.
    """

    codec: Codec = Identity()  # for the leaders' parameters
    every: int = 16  # steps between pulls to the leader of all ranks
    pull: float = 0.1  # fraction of the difference; more: replicas stay closer, and explore less
    groups: Grouping = OneGroup()
    local_every: int = 4  # steps between pulls within groups, if there are several
    local_pull: float = 0.1  # fraction of the difference to the group's leader
    window: int = 8  # losses whose mean is compared; more: less noise, older losses
    stale_pull: float = 0.0  # pull to the leaders as last received, spread over the steps in between
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec):
            raise ValueError(f"LeaderSGD takes a codec, not {self.codec!r}")
        for name in ("every", "local_every", "window"):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= 1):
                raise ValueError(f"LeaderSGD takes {name} of 1 or more, not {getattr(self, name)!r}")
        for name in ("pull", "local_pull"):
            if not (isinstance(getattr(self, name), int | float) and 0 < getattr(self, name) <= 1):
                raise ValueError(f"LeaderSGD takes a {name} above 0 and up to 1, not {getattr(self, name)!r}")
        if not (isinstance(self.stale_pull, int | float) and 0 <= self.stale_pull <= 1):
            raise ValueError(f"LeaderSGD takes a stale_pull from 0 to 1, not {self.stale_pull!r}")
        if not isinstance(self.groups, Grouping):
            raise ValueError(f"LeaderSGD takes groups such as GroupsOf(4) or ByHost(), not {self.groups!r}")
        check_fuse_below("LeaderSGD", self.fuse_below)

    needs_loss: ClassVar[bool] = True

    def check(self, size: int, hosts: tuple[str, ...] = ()) -> None:
        self.groups_of(size, hosts)

    def dry_run(self) -> tuple[Strategy, int]:
        return replace(self, groups=OneGroup()), 1

    def groups_of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        groups = self.groups.of(size, hosts)
        return groups if len(groups) > 1 else ()

    @property
    def period(self) -> int:
        return self.every

    def will_communicate(self, step: int) -> bool:
        return step % self.every == 0 or step % self.local_every == 0

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.codec, self.fuse_below)

    def init(self, replica: Replica) -> LeaderSGDState:
        units = self.units(replica)
        here = {unit.key: unit.copied(replica.parameters) for unit in units} if self.stale_pull else {}
        seeds = {unit.key: unit.seed for unit in units}
        losses = torch.zeros(self.window, dtype=torch.float64)
        return LeaderSGDState(0, losses, seeds, here if self._group(replica) else {}, here)

    def after_update(self, replica: Replica, state: LeaderSGDState) -> Rounds:
        yield from ()
        assert replica.loss is not None, "the session checks that a loss was reported"
        losses = state.losses.clone()
        losses[state.step % self.window] = replica.loss
        state = state._replace(step=state.step + 1, losses=losses)
        units, group = self.units(replica), self._group(replica)
        if self.stale_pull:
            _pull(units, replica, state.local, self.stale_pull / self.local_every)
            _pull(units, replica, state.overall, self.stale_pull / self.every)
        # Pulls come last, so that both leaders send the parameters with which their losses were measured.
        leaders: list[tuple[LeaderModel, float]] = []
        if group and state.step % self.local_every == 0:
            of_group = yield from within(group, self._leader(part_of(replica, group), state))
            state = state._replace(seeds=of_group.seeds, local=of_group.tensors if self.stale_pull else {})
            leaders.append((of_group, self.local_pull))
        if state.step % self.every == 0:
            of_all = yield from self._leader(replica, state)
            state = state._replace(seeds=of_all.seeds, overall=of_all.tensors if self.stale_pull else {})
            leaders.append((of_all, self.pull))
        nonfinite = tuple(dropped for leader, _ in leaders for dropped in leader.nonfinite)
        for leader, pull in () if nonfinite else leaders:
            _pull(units, replica, leader.tensors, pull)
        return StepResult(state, nonfinite)

    def loss_of(self, state: LeaderSGDState) -> float:
        """The mean of the last losses; infinite if not finite, so that a diverged replica never leads."""
        mean = float(state.losses[: min(state.step, self.window)].mean()) if state.step else inf
        return mean if isfinite(mean) else inf

    def _leader(self, replica: Replica, state: LeaderSGDState) -> Rounds:
        """Elect a leader and receive its parameters. Returns a LeaderModel."""
        units, peers = self.units(replica), all_ranks(replica.size)
        leader = yield from elect_leader(replica, self.loss_of(state), unit=units[0].key)
        # Copies, as parameters may change while the leader sends.
        here = [unit.gathered(replica.parameters).clone() for unit in units]
        conversations = [
            _from_leader(x, self.codec, leader, state.seeds[unit.key]) for unit, x in zip(units, here, strict=True)
        ]
        received = yield from lockstep(
            [
                (peers, checked_exchange(unit, c, replica.parameters))
                for unit, c in zip(units, conversations, strict=True)
            ]
        )
        return LeaderModel(
            {unit.key: x.reduced.to(working(x.reduced.dtype)) for unit, x in zip(units, received, strict=True)},
            {unit.key: x.state for unit, x in zip(units, received, strict=True)},
            tuple(x.nonfinite for x in received if x.nonfinite),
        )

    def _group(self, replica: Replica) -> tuple[int, ...]:
        """The ranks of this rank's group; empty if there is only one group."""
        groups = self.groups_of(replica.size, replica.hosts)
        return group_of(groups, replica.rank) if groups else ()


class LeaderModel(NamedTuple):
    """A leader's parameters, by unit."""

    tensors: dict[str, Tensor]
    seeds: dict[str, int]
    nonfinite: tuple[NonFinite, ...]


def elect_leader(replica: Replica, loss: float, unit: str = "") -> Rounds:
    """All ranks receive all losses. Returns the rank with the lowest; of equal losses, the lowest rank."""
    device = next(iter(replica.parameters.values())).device
    mine = torch.zeros(replica.size, dtype=torch.float64, device=device)
    mine[replica.rank] = min(loss, LARGEST)
    peers = Peers("losses", tuple((rank, 1.0) for rank in range(replica.size)))
    (losses,) = yield from lockstep([(peers, _losses(mine, unit))])
    return int(losses.argmin())


def _losses(mine: Tensor, unit: str) -> Generator[Message, Reply[Tensor], Tensor]:
    reply = yield Message(mine, Identity(), unit=unit)
    return reply.reduced


def leading(replica: Replica, buffers: Mapping[str, Tensor], loss: float) -> Rounds:
    """Broadcast parameters and buffers of the rank with the lowest loss. Returns them by name."""
    leader: int = yield from elect_leader(replica, loss)
    here = {name: x.detach().clone() for name, x in {**replica.parameters, **buffers}.items()}
    yield from broadcast(here, dict.fromkeys(here, leader), replica.size)
    return here


def _from_leader(x: Tensor, codec: Codec, leader: int, seed: int) -> Conversation:
    reply = yield Message(x, codec, seed, route=broadcast_from(leader))
    return reply, seed + STRIDE


def _pull(units: tuple[Unit, ...], replica: Replica, leader: Mapping[str, Tensor], fraction: float) -> None:
    """Move the replica to a leader by a fraction of the difference; the leader itself does not move."""
    for unit in units if leader else ():
        x, there = unit.copied(replica.parameters), leader[unit.key]
        unit.write(there if fraction == 1 else x.add_((there - x).mul_(fraction)), replica.parameters)
