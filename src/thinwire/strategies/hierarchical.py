from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Reducer, Replica, Rounds, State, Strategy
from ..core.lazy import is_finite
from ..core.outcome import Learning, NonFinite, StepResult
from ..topologies import ByHost, Grouping, Groups, OneGroup, group_of, part_of, within
from .broadcasts import told
from .data_parallel import DataParallel
from .independent import Independent
from .local_sgd import LocalSGD
from .units import Unit

INSIDE = "within groups"  # what the meter counts under this name is no news to other groups


class HierarchicalState(NamedTuple):
    step: int
    inner: State
    outer: State  # None for ranks that do not speak with other groups


class Seat(NamedTuple):
    """Where a rank is: in its group, and in the column of those who speak for the same parameters in other groups."""

    group: tuple[int, ...]
    shares: tuple[frozenset[str], ...]  # the names of the parameters that each of the group's first ranks speaks for
    column: tuple[int, ...]  # empty if it speaks for none


@dataclass(frozen=True, repr=False)
class Hierarchical(Independent):
    """One way within groups of ranks, such as those of a machine, and another between the groups.

    The ranks of a group are alike when groups speak with each other: so each speaks for some of the parameters, what
    goes from machine to machine is said once, and they tell each other what came of it.
    """

    inner: Codec | Reducer | Strategy  # within a group: averaged gradients, or LocalSGD that meet more often
    outer: Codec | Reducer | Strategy  # between groups: averaged gradients, or LocalSGD
    groups: Grouping = ByHost()

    def __post_init__(self) -> None:
        inner, outer = self._within(), self._between()
        if not isinstance(self.groups, Grouping):
            raise ValueError(f"Hierarchical takes groups such as GroupsOf(4) or ByHost(), not {self.groups!r}")
        for what, part in (("within", inner), ("between", outer)):
            if not isinstance(part, DataParallel | LocalSGD):
                raise ValueError(f"Hierarchical averages gradients or takes LocalSGD {what} groups, not {part!r}")
            if isinstance(part, LocalSGD) and part.delay:
                raise ValueError(f"Hierarchical waits for its meetings: {part!r} has a delay")
        if isinstance(inner, LocalSGD):
            apart = not isinstance(outer, LocalSGD) or outer.every % inner.every or outer.after != inner.after
            if apart:
                raise ValueError(
                    f"the ranks of a group have to have met whenever groups speak with each other: {outer!r} does not "
                    f"meet at a multiple of every={inner.every}, from after={inner.after} on"
                )

    def check(self, size: int, hosts: tuple[str, ...] = ()) -> None:
        self.groups_of(size, hosts)

    def dry_run(self) -> tuple[Strategy, int]:
        return replace(self, groups=OneGroup()), 1

    def groups_of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        return self.groups.of(size, hosts)

    @property
    def saves(self) -> bool:
        return False  # not within groups; and between them, others see that only who know the machines

    @property
    def period(self) -> int:
        outer = self._between()
        return outer.period if isinstance(outer, LocalSGD) else 1

    @property
    def warm_up(self) -> int:
        outer = self._between()
        return outer.warm_up if isinstance(outer, LocalSGD) else 0

    def local_gradients(self, state: HierarchicalState) -> bool:
        inner = self._within()
        return isinstance(inner, LocalSGD) and inner.local_gradients(state.inner)

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        """What this rank speaks for between groups."""
        seat = self.seat(replica)
        return self._between().units(_for_others(replica, seat)) if seat.column else ()

    def learning(self, replica: Replica, state: HierarchicalState) -> dict[str, Learning]:
        within = self._within().learning(part_of(replica, self.seat(replica).group), state.inner)
        return {f"{INSIDE}: {key}": found for key, found in within.items()} | super().learning(replica, state)

    def unit_states(self, state: HierarchicalState) -> dict[str, State]:
        outer = self._between()
        states: dict[str, State] | None = (
            state.outer.units if isinstance(outer, LocalSGD) and state.outer is not None else state.outer
        )
        return states or {}

    def init(self, replica: Replica) -> HierarchicalState:
        seat = self.seat(replica)
        outer = self._between().init(_for_others(replica, seat)) if seat.column else None
        return HierarchicalState(0, self._within().init(part_of(replica, seat.group)), outer)

    def before_update(self, replica: Replica, state: HierarchicalState) -> Rounds:
        seat, outer = self.seat(replica), self._between()
        mine = self._within().before_update(part_of(replica, seat.group), state.inner)
        inner = yield from within(seat.group, mine, INSIDE)
        state, lost = state._replace(inner=inner.state), list(inner.lost)
        if not seat.shares or (isinstance(outer, LocalSGD) and state.step >= outer.after):
            return StepResult(state, inner.lost)
        if seat.column:
            said = yield from within(seat.column, outer.before_update(_for_others(replica, seat), state.outer))
            state, lost = state._replace(outer=said.state), [*lost, *said.lost]
        lost += yield from within(seat.group, _gradients_told(replica, seat), INSIDE)
        return StepResult(state, tuple(lost))

    def after_update(self, replica: Replica, state: HierarchicalState) -> Rounds:
        seat, outer = self.seat(replica), self._between()
        state = state._replace(step=state.step + 1)
        mine = self._within().after_update(part_of(replica, seat.group), state.inner)
        inner = yield from within(seat.group, mine, INSIDE)
        state, lost = state._replace(inner=inner.state), list(inner.lost)
        if seat.column:
            said = yield from within(seat.column, outer.after_update(_for_others(replica, seat), state.outer))
            state, lost = state._replace(outer=said.state), [*lost, *said.lost]
        if seat.shares and isinstance(outer, LocalSGD) and outer.meets(state.step):
            lost += yield from within(seat.group, _parameters_told(replica, seat), INSIDE)
            if isinstance(within_group := self._within(), LocalSGD):
                state = state._replace(inner=within_group.moved(part_of(replica, seat.group), state.inner))
        return StepResult(state, tuple(lost))

    def seat(self, replica: Replica) -> Seat:
        groups = self.groups_of(replica.size, replica.hosts)
        group = group_of(groups, replica.rank)
        shares = _shares(replica, groups)
        place = group.index(replica.rank)
        column = tuple(sorted(ranks[place] for ranks in groups)) if place < len(shares) else ()
        return Seat(group, shares, column)

    def _within(self) -> DataParallel | LocalSGD:
        return self.inner if isinstance(self.inner, Strategy) else DataParallel(self.inner)  # type: ignore[return-value]

    def _between(self) -> DataParallel | LocalSGD:
        return self.outer if isinstance(self.outer, Strategy) else DataParallel(self.outer)  # type: ignore[return-value]


def _shares(replica: Replica, groups: Groups) -> tuple[frozenset[str], ...]:
    """Which parameters each of a group's first ranks speaks for: about as many entries each; none if it is alone."""
    if len(groups) == 1:
        return ()
    count = min(len(replica.parameters), *(len(ranks) for ranks in groups))
    shares: list[set[str]] = [set() for _ in range(count)]
    sizes = [0] * count
    for name, p in sorted(replica.parameters.items(), key=lambda item: -item[1].numel()):
        least = sizes.index(min(sizes))
        shares[least].add(name)
        sizes[least] += p.numel()
    return tuple(map(frozenset, shares))


def _for_others(replica: Replica, seat: Seat) -> Replica:
    """What a rank speaks for between groups, as a replica of its own."""
    return part_of(_share(replica, seat.shares[seat.group.index(replica.rank)]), seat.column)


def _share(replica: Replica, names: Collection[str]) -> Replica:
    return replica._replace(parameters={name: p for name, p in replica.parameters.items() if name in names})


def _parameters_told(replica: Replica, seat: Seat) -> Rounds:
    """The ranks of a group tell each other what they heard from other groups. Returns what was lost."""
    yield from told(replica.parameters, _sources(seat), len(seat.group))
    return _lost(replica.parameters, "parameters")


def _gradients_told(replica: Replica, seat: Seat) -> Rounds:
    """As parameters; and which of them got a gradient in any group."""
    gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in replica.parameters.items()}
    used = {f"whether {n}": torch.full((1,), float(p.grad is not None)) for n, p in replica.parameters.items()}
    used = {name: x.to(next(iter(gradients.values())).device) for name, x in used.items()}
    sources = _sources(seat)
    sources |= {f"whether {name}": source for name, source in sources.items()}
    yield from told(gradients | used, sources, len(seat.group))
    for name, p in replica.parameters.items():
        p.grad = gradients[name] if used[f"whether {name}"] else None
    return _lost(gradients, "gradient")


def _sources(seat: Seat) -> dict[str, int]:
    """Who speaks for each parameter, by its number in the group."""
    return {name: source for source, names in enumerate(seat.shares) for name in names}


def _lost(tensors: Mapping[str, Tensor], what: str) -> list[NonFinite]:
    return [NonFinite((name,), (), what) for name, x in tensors.items() if not is_finite(x)]
