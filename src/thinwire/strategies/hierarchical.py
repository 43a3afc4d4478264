from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Reducer, Replica, Rounds, State, Strategy
from ..core.lazy import is_finite
from ..core.outcome import Learning, NonFinite, StepResult
from ..topologies import ByHost, Grouping, Groups, OneGroup, group_of, part_of, within
from .broadcasts import broadcast
from .data_parallel import DataParallel
from .independent import Independent
from .local_sgd import LocalSGD
from .units import Unit

INSIDE = "within groups"  # the meter's key for bytes that stay within a group


class HierarchicalState(NamedTuple):
    step: int
    inner: State
    outer: State  # None for ranks that exchange nothing with other groups


class RankLayout(NamedTuple):
    """A rank's group, and its column: the ranks of all groups that exchange the same shard of the parameters."""

    group: tuple[int, ...]
    shares: tuple[frozenset[str], ...]  # by rank of the group: the names of the parameters in its shard
    column: tuple[int, ...]  # empty if this rank has no shard


@dataclass(frozen=True, repr=False)
class Hierarchical(Independent):
    """Two-level training: one method within groups of ranks, such as a machine's, another between the groups.

    Replicas within a group are identical when groups exchange. So each rank of a group exchanges one shard of the
    parameters with the other groups, and then broadcasts the result within its group. Every shard crosses the slow
    link once.

    Examples:
        >>> from thinwire import GroupsOf, Hierarchical, Identity, LocalSGD
        >>> method = Hierarchical(Identity(), LocalSGD(Identity(), every=8), GroupsOf(2))
        >>> method.groups_of(4)  # dense within these, local SGD between them
        ((0, 1), (2, 3))
    """

    inner: Codec | Reducer | Strategy  # within a group: averaged gradients, or LocalSGD that synchronizes more often
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
                raise ValueError(f"Hierarchical does not support overlap: {part!r} has a delay")
        if isinstance(inner, LocalSGD):
            misaligned = not isinstance(outer, LocalSGD) or outer.every % inner.every or outer.after != inner.after
            if misaligned:
                raise ValueError(
                    f"a group must have synchronized before it exchanges with other groups: {outer!r} must have an "
                    f"every that is a multiple of {inner.every}, and after={inner.after}"
                )

    def check(self, size: int, hosts: tuple[str, ...] = ()) -> None:
        self.groups_of(size, hosts)

    def dry_run(self) -> tuple[Strategy, int]:
        return replace(self, groups=OneGroup()), 1

    def groups_of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        return self.groups.of(size, hosts)

    @property
    def saves(self) -> bool:
        return False  # within groups it sends as much; savings between groups depend on the machines

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
        """The units that this rank exchanges with other groups."""
        layout = self.layout(replica)
        return self._between().units(_for_others(replica, layout)) if layout.column else ()

    def learning(self, replica: Replica, state: HierarchicalState) -> dict[str, Learning]:
        within = self._within().learning(part_of(replica, self.layout(replica).group), state.inner)
        return {f"{INSIDE}: {key}": found for key, found in within.items()} | super().learning(replica, state)

    def unit_states(self, state: HierarchicalState) -> dict[str, State]:
        outer = self._between()
        states: dict[str, State] | None = (
            state.outer.units if isinstance(outer, LocalSGD) and state.outer is not None else state.outer
        )
        return states or {}

    def settled(self) -> Strategy:
        inner, outer = (p.settled() if isinstance(p, Strategy) else p for p in (self.inner, self.outer))
        return replace(self, inner=inner, outer=outer)

    def init(self, replica: Replica) -> HierarchicalState:
        layout = self.layout(replica)
        outer = self._between().init(_for_others(replica, layout)) if layout.column else None
        return HierarchicalState(0, self._within().init(part_of(replica, layout.group)), outer)

    def before_update(self, replica: Replica, state: HierarchicalState) -> Rounds:
        layout, outer = self.layout(replica), self._between()
        rounds = self._within().before_update(part_of(replica, layout.group), state.inner)
        inner = yield from within(layout.group, rounds, INSIDE)
        state, nonfinite = state._replace(inner=inner.state), list(inner.nonfinite)
        if not layout.shares or (isinstance(outer, LocalSGD) and state.step >= outer.after):
            return StepResult(state, inner.nonfinite)
        if layout.column:
            outer_result = yield from within(
                layout.column, outer.before_update(_for_others(replica, layout), state.outer)
            )
            state, nonfinite = state._replace(outer=outer_result.state), [*nonfinite, *outer_result.nonfinite]
        nonfinite += yield from within(layout.group, _share_gradients(replica, layout), INSIDE)
        return StepResult(state, tuple(nonfinite))

    def after_update(self, replica: Replica, state: HierarchicalState) -> Rounds:
        layout, outer = self.layout(replica), self._between()
        state = state._replace(step=state.step + 1)
        rounds = self._within().after_update(part_of(replica, layout.group), state.inner)
        inner = yield from within(layout.group, rounds, INSIDE)
        state, nonfinite = state._replace(inner=inner.state), list(inner.nonfinite)
        if layout.column:
            outer_result = yield from within(
                layout.column, outer.after_update(_for_others(replica, layout), state.outer)
            )
            state, nonfinite = state._replace(outer=outer_result.state), [*nonfinite, *outer_result.nonfinite]
        if layout.shares and isinstance(outer, LocalSGD) and outer.synchronizes(state.step):
            nonfinite += yield from within(layout.group, _share_parameters(replica, layout), INSIDE)
            if isinstance(within_group := self._within(), LocalSGD):
                state = state._replace(inner=within_group.reanchored(part_of(replica, layout.group), state.inner))
        return StepResult(state, tuple(nonfinite))

    def layout(self, replica: Replica) -> RankLayout:
        groups = self.groups_of(replica.size, replica.hosts)
        group = group_of(groups, replica.rank)
        shares = _shares(replica, groups)
        index = group.index(replica.rank)
        column = tuple(sorted(ranks[index] for ranks in groups)) if index < len(shares) else ()
        return RankLayout(group, shares, column)

    def _within(self) -> DataParallel | LocalSGD:
        return self.inner if isinstance(self.inner, Strategy) else DataParallel(self.inner)  # type: ignore[return-value]

    def _between(self) -> DataParallel | LocalSGD:
        return self.outer if isinstance(self.outer, Strategy) else DataParallel(self.outer)  # type: ignore[return-value]


def _shares(replica: Replica, groups: Groups) -> tuple[frozenset[str], ...]:
    """The parameters in the shard of each of a group's first ranks, of about equal size; none for a single group."""
    if len(groups) == 1:
        return ()
    count = min(len(replica.parameters), *(len(ranks) for ranks in groups))
    shares: list[set[str]] = [set() for _ in range(count)]
    sizes = [0] * count
    for name, p in sorted(replica.parameters.items(), key=lambda item: -item[1].numel()):
        smallest = sizes.index(min(sizes))
        shares[smallest].add(name)
        sizes[smallest] += p.numel()
    return tuple(map(frozenset, shares))


def _for_others(replica: Replica, layout: RankLayout) -> Replica:
    """A rank's shard, as a replica whose ranks are those of its column."""
    return part_of(_share(replica, layout.shares[layout.group.index(replica.rank)]), layout.column)


def _share(replica: Replica, names: Collection[str]) -> Replica:
    return replica._replace(parameters={name: p for name, p in replica.parameters.items() if name in names})


def _share_parameters(replica: Replica, layout: RankLayout) -> Rounds:
    """Each rank of a group broadcasts its shard within the group. Returns the parameters that are not finite."""
    yield from broadcast(replica.parameters, _sources(layout), len(layout.group))
    return _not_finite(replica.parameters, "parameters")


def _share_gradients(replica: Replica, layout: RankLayout) -> Rounds:
    """Like `_share_parameters`, for gradients and for flags: whether a parameter has a gradient in any group."""
    gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in replica.parameters.items()}
    used = {_flag(n): torch.full((1,), float(p.grad is not None)) for n, p in replica.parameters.items()}
    used = {name: x.to(next(iter(gradients.values())).device) for name, x in used.items()}
    sources = _sources(layout)
    sources |= {_flag(name): source for name, source in sources.items()}
    yield from broadcast(gradients | used, sources, len(layout.group))
    for name, p in replica.parameters.items():
        p.grad = gradients[name] if used[_flag(name)] else None
    return _not_finite(gradients, "gradient")


def _flag(name: str) -> str:
    """The key of a parameter's flag: whether it has a gradient."""
    return f"has a gradient: {name}"


def _sources(layout: RankLayout) -> dict[str, int]:
    """The rank within the group whose shard has each parameter."""
    return {name: source for source, names in enumerate(layout.shares) for name in names}


def _not_finite(tensors: Mapping[str, Tensor], what: str) -> list[NonFinite]:
    return [NonFinite((name,), (), what) for name, x in tensors.items() if not is_finite(x)]
