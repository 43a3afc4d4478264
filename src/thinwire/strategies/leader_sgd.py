from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Conversation, Message, Peers, Replica, Reply, Rounds, Strategy, lockstep
from ..core.outcome import NonFinite, StepResult
from ..core.precision import working
from ..reducers.average import STRIDE
from ..topologies import Grouping, Groups, OneGroup, all_ranks, group_of, part_of, within
from .broadcasts import told
from .independent import Independent
from .units import Unit, check_fuse_below, spoken, units_of

LARGEST = 1e300  # a loss that is not a number counts as this


class LeaderSGDState(NamedTuple):
    step: int
    losses: Tensor  # the last ones, over and over in the same places
    seeds: dict[str, int]
    local: dict[str, Tensor]  # the leaders that were last heard, if they pull in between
    whole: dict[str, Tensor]


@dataclass(frozen=True, repr=False)
class LeaderSGD(Independent):
    """Each replica takes steps of its own, and is pulled now and then towards the one with the lowest loss: LSGD.

    A leader is one of the replicas, as it is: only it speaks. With groups, each has a leader of its own too, which
    pulls more often. Losses come from `handle.report_loss(loss)`.
    """

    codec: Codec = Identity()  # for what leaders say
    every: int = 16  # steps from one pull towards the leader of all to the next
    pull: float = 0.1  # of the way to it; more: replicas stay closer together, and explore less
    groups: Grouping = OneGroup()
    local_every: int = 4  # the same within groups, if there are several
    local_pull: float = 0.1
    window: int = 8  # losses whose mean is compared; more: less chance, older news
    stale_pull: float = 0.0  # towards the leaders that were last heard, spread over the steps in between
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
        assert replica.loss is not None, "whoever runs it has seen to that"
        losses = state.losses.clone()
        losses[state.step % self.window] = replica.loss
        state = state._replace(step=state.step + 1, losses=losses)
        units, group = self.units(replica), self._group(replica)
        if self.stale_pull:
            _pull(units, replica, state.local, self.stale_pull / self.local_every)
            _pull(units, replica, state.whole, self.stale_pull / self.every)
        # Both leaders speak as they were when their losses were measured: before anyone is pulled.
        led: list[tuple[LeaderModel, float]] = []
        if group and state.step % self.local_every == 0:
            nearby = yield from within(group, self._led(part_of(replica, group), state))
            state = state._replace(seeds=nearby.seeds, local=nearby.tensors if self.stale_pull else {})
            led.append((nearby, self.local_pull))
        if state.step % self.every == 0:
            of_all = yield from self._led(replica, state)
            state = state._replace(seeds=of_all.seeds, whole=of_all.tensors if self.stale_pull else {})
            led.append((of_all, self.pull))
        lost = tuple(what for leader, _ in led for what in leader.lost)
        for leader, pull in () if lost else led:
            _pull(units, replica, leader.tensors, pull)
        return StepResult(state, lost)

    def loss_of(self, state: LeaderSGDState) -> float:
        """The mean of the last losses, of as many as there are; whoever has lost its way leads nobody."""
        mean = float(state.losses[: min(state.step, self.window)].mean()) if state.step else inf
        return mean if isfinite(mean) else inf

    def _led(self, replica: Replica, state: LeaderSGDState) -> Rounds:
        """Choose a leader, and hear it. Returns what it said."""
        units, peers = self.units(replica), all_ranks(replica.size)
        leader = yield from elected(replica, self.loss_of(state), about=units[0].key)
        here = [unit.gathered(replica.parameters).clone() for unit in units]  # it goes on, and is pulled by another
        said = [_said(x, self.codec, leader, state.seeds[unit.key]) for unit, x in zip(units, here, strict=True)]
        heard = yield from lockstep(
            [(peers, spoken(unit, x, replica.parameters)) for unit, x in zip(units, said, strict=True)]
        )
        return LeaderModel(
            {unit.key: x.reduced.to(working(x.reduced.dtype)) for unit, x in zip(units, heard, strict=True)},
            {unit.key: x.state for unit, x in zip(units, heard, strict=True)},
            tuple(x.lost for x in heard if x.lost),
        )

    def _group(self, replica: Replica) -> tuple[int, ...]:
        """The ranks of this one's group; none if all are in one."""
        groups = self.groups_of(replica.size, replica.hosts)
        return group_of(groups, replica.rank) if groups else ()


class LeaderModel(NamedTuple):
    """What a leader said, by unit."""

    tensors: dict[str, Tensor]
    seeds: dict[str, int]
    lost: tuple[NonFinite, ...]


def elected(replica: Replica, loss: float, about: str = "") -> Rounds:
    """All hear all losses. Returns the rank with the lowest, of equal ones the first."""
    device = next(iter(replica.parameters.values())).device
    mine = torch.zeros(replica.size, dtype=torch.float64, device=device)
    mine[replica.rank] = min(loss, LARGEST)
    peers = Peers("losses", tuple((rank, 1.0) for rank in range(replica.size)))
    (losses,) = yield from lockstep([(peers, _losses(mine, about))])
    return int(losses.argmin())


def _losses(mine: Tensor, about: str) -> Generator[Message, Reply[Tensor], Tensor]:
    reply = yield Message(mine, Identity(), about=about)
    return reply.reduced


def leading(replica: Replica, buffers: Mapping[str, Tensor], loss: float) -> Rounds:
    """Hear the rank with the lowest loss say all that it has. Returns that, by name."""
    leader: int = yield from elected(replica, loss)
    here = {name: x.detach().clone() for name, x in {**replica.parameters, **buffers}.items()}
    yield from told(here, dict.fromkeys(here, leader), replica.size)
    return here


def _said(x: Tensor, codec: Codec, leader: int, seed: int) -> Conversation:
    reply = yield Message(x, codec, seed, source=leader)
    return reply, seed + STRIDE


def _pull(units: tuple[Unit, ...], replica: Replica, leader: Mapping[str, Tensor], part: float) -> None:
    """Go a part of the way to a leader; it stays where it is itself."""
    for unit in units if leader else ():
        x, there = unit.copied(replica.parameters), leader[unit.key]
        unit.write(there if part == 1 else x.add_((there - x).mul_(part)), replica.parameters)
