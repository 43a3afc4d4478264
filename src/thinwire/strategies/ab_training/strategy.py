from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from ...codecs import Identity
from ...core import Codec, Reducer, Replica, Rounds, State, Strategy
from ...core.described import parts_of
from ...core.layer_report import Layer
from ...core.outcome import StepResult
from ...reducers import Learned, as_reducer
from ...topologies import Grouping, Groups, group_of, part_of, within
from ..data_parallel import DataParallel
from ..independent import Independent
from ..units import Unit
from . import synchronization as syncs
from .factored_model import MOMENTS, FactoredModel, decomposed
from .synchronization import SYNC, SYNCS, workshop_of

WEIGHTS, FACTORS = "gradients of weights", "gradients of factors"  # what the meter counts bytes under


class ABState(NamedTuple):
    step: int
    exchange: dict[str, State]  # of gradients, about what is trained at the moment


@dataclass(frozen=True, repr=False)
class ABTraining(Independent):
    """Matrices become products of two thin factors, of which some groups of ranks train one, others the other.

    Training begins, and goes on every so often, with averaged gradients of whole weights among all. In between, groups
    average gradients of their factor, and of what has none, among themselves only.
    """

    same_arithmetic: ClassVar[bool] = True

    reducer: Codec | Reducer = Identity()  # for gradients, among all and within groups
    after: int = 100  # steps before weights are factored for the first time
    every: int = 100  # steps from one time to the next; more: groups go on by themselves for longer
    full: int = 10  # of these, the last ones, with whole weights among all
    cutoff: float = 0.1  # directions whose singular value is at most this part of the largest are dropped
    sync: str = "only-learned"  # what groups agree on after their time: see the docs
    groups: Grouping | None = None  # the first half of them trains A, the others B; None: two groups
    keep: tuple[str, ...] = ()  # names of layers, as patterns, that stay whole
    ends: bool = True  # the first and the last layer stay whole
    rebound: int = 10  # steps after each change in which the learning rate climbs to what it is
    moments: str = "carry"  # what the optimizer remembers is turned with the weights; "reset": is forgotten

    def __post_init__(self) -> None:
        if any(isinstance(part, Learned) for part in parts_of(as_reducer(self.reducer))):
            raise ValueError(f"{self.reducer!r} learns from step to step, and what ABTraining exchanges changes")
        for name, least in (("after", 0), ("every", 1), ("full", 0), ("rebound", 0)):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise ValueError(f"ABTraining takes {name} of {least} steps or more, not {value!r}")
        if self.full >= self.every:
            raise ValueError(f"of every={self.every} steps, full={self.full} with whole weights leave none for factors")
        if not (isinstance(self.cutoff, int | float) and 0 <= self.cutoff < 1):
            raise ValueError(f"ABTraining takes a cutoff from 0 to below 1, not {self.cutoff!r}")
        if self.sync not in SYNCS:
            raise ValueError(f"ABTraining syncs {', '.join(map(repr, SYNCS))}, not {self.sync!r}")
        if self.groups is not None and not isinstance(self.groups, Grouping):
            raise ValueError(f"ABTraining takes groups such as GroupsOf(4) or ByHost(), not {self.groups!r}")
        if not (isinstance(self.keep, tuple) and all(isinstance(name, str) for name in self.keep)):
            raise ValueError(f"ABTraining keeps layers by a tuple of patterns such as ('head.*',), not {self.keep!r}")
        if self.moments not in MOMENTS:
            raise ValueError(f"ABTraining takes moments {' or '.join(map(repr, MOMENTS))}, not {self.moments!r}")

    def check(self, size: int, hosts: tuple[str, ...] = ()) -> None:
        self.groups_of(size, hosts)

    @property
    def period(self) -> int:
        return self.every

    @property
    def warm_up(self) -> int:
        return self.after

    def local_gradients(self, state: ABState) -> bool:
        return False

    def prepare(self, replica: Replica, model: Any, optimizer: Any) -> Replica:
        """Factor the model's layers; the optimizer gets the factors."""
        if replica.wholes:
            raise ValueError(f"{self!r} factors layers, and {next(iter(replica.wholes))} is split over processes")
        if optimizer is None:
            raise ValueError(f"{self!r} needs the optimizer, whose parameters it changes")
        factored_model = FactoredModel(model, optimizer, self.keep, self.ends)
        parameters, kinds = dict(replica.parameters), dict(replica.kinds)
        for bench in factored_model.benches:
            parameters |= {bench.names["a"]: bench.a, bench.names["b"]: bench.b}
            kinds |= dict.fromkeys(bench.names.values(), kinds[bench.names["weight"]])
        return replica._replace(parameters=parameters, kinds=kinds, factored_model=factored_model)

    def dry_run(self) -> tuple[Strategy, int]:
        return DataParallel(self.reducer), 1

    # --- who trains what

    def groups_of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        if self.groups is not None:
            return self.groups.of(size, hosts)
        half = (size + 1) // 2
        return tuple(ranks for ranks in (tuple(range(half)), tuple(range(half, size))) if ranks)

    def trains(self, replica: Replica) -> str:
        """The factor that a rank trains: "a" or "b"."""
        groups = self.groups_of(replica.size, replica.hosts)
        first = groups.index(group_of(groups, replica.rank)) < (len(groups) + 1) // 2
        return "a" if first and len(groups) > 1 and self.sync != "only-b" else "b"

    def is_split(self, step: int) -> bool:
        """Whether weights are factored after so many updates."""
        return step >= self._first and (step - self._first) % self.every < self.every - self.full

    def changes(self, step: int) -> bool:
        """Whether weights are factored, or made whole, or both, after so many updates."""
        into = (step - self._first) % self.every
        return step >= self._first and (into == 0 or into == self.every - self.full)

    def active(self, replica: Replica) -> Replica:
        """What is trained at the moment, as a replica of its own."""
        mine, parameters = self.trains(replica), dict(replica.parameters)
        for bench in workshop_of(replica).benches:
            trained = "weight" if bench.rank is None else mine
            for which, name in bench.names.items():
                if which != trained:
                    del parameters[name]
        return replica._replace(parameters=parameters)

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return self._exchange.units(self.active(replica))

    def layers(
        self, replica: Replica, state: ABState, dense_bytes: int, payload: Mapping[str, int]
    ) -> dict[str, Layer]:
        return {}  # what they are changes from phase to phase: the meter counts by these

    def effective(self, replica: Replica) -> Mapping[str, Tensor]:
        """The parameters of the model as it would be without factors."""
        found = dict(replica.parameters)
        for bench in workshop_of(replica).benches:
            found[bench.names["weight"]] = bench.matrix().view(bench.layer.full_shape)
            del found[bench.names["a"]], found[bench.names["b"]]
        return found

    # --- steps

    def init(self, replica: Replica) -> ABState:
        for bench in workshop_of(replica).benches:
            bench.train("weight" if bench.rank is None else self.trains(replica))
        return ABState(0, self._exchange.init(self.active(replica)))

    def before_update(self, replica: Replica, state: ABState) -> Rounds:
        workshop_of(replica).slow_down(self.slowed(state.step))
        active, split = self.active(replica), self.is_split(state.step)
        among = group_of(self.groups_of(replica.size, replica.hosts), replica.rank)
        among = among if split else tuple(range(replica.size))
        talk = self._exchange.before_update(part_of(active, among), state.exchange)
        outcome = yield from within(among, talk, FACTORS if split else WEIGHTS)
        return StepResult(state._replace(exchange=outcome.state), outcome.lost)

    def after_update(self, replica: Replica, state: ABState) -> Rounds:
        yield from ()
        workshop_of(replica).slow_down(1.0)
        step = state.step + 1
        if not self.changes(step):
            return StepResult(state._replace(step=step))
        if self.is_split(state.step):
            rest, factored_model = self._rest(replica), workshop_of(replica)
            moments = factored_model.moments(rest)
            agreed = yield from self.agreed(replica, moments)
            factored_model.remember(rest, moments)
            lost = syncs.not_finite(agreed)
            if lost:
                return StepResult(state, lost)
            self._make_whole(replica, agreed)
        if self.is_split(step):
            lost = yield from within(tuple(range(replica.size)), syncs.split(replica, self.cutoff, self.moments), SYNC)
            if lost:
                return StepResult(state, lost)
        return StepResult(self.init(replica)._replace(step=step))

    def slowed(self, step: int) -> float:
        """The part of the learning rate that the update has which follows so many: it climbs after each change."""
        if step < self._first:
            return 1.0
        into = (step - self._first) % self.every
        since = into if into < self.every - self.full else into - (self.every - self.full)
        return min(1.0, since / self.rebound) if self.rebound else 1.0

    def agreed(self, replica: Replica, more: dict[str, Tensor] | None = None) -> Rounds:
        """What groups agree on: all parameters, of whole layers, by name. Changes nothing but `more`, to its mean."""
        groups = self.groups_of(replica.size, replica.hosts)
        whole = {name: x.detach().clone() for name, x in self.effective(replica).items()}
        return (yield from syncs.agreed(replica, self.sync, groups, self.trains(replica), whole, more))

    def ranks_of_layers(self, replica: Replica, model: Any) -> dict[str, int]:
        ranks = {}
        for bench in workshop_of(replica).benches:
            weight = model.get_parameter(bench.names["weight"]).detach().flatten(1)
            if bench.rank is None:
                ranks[bench.name] = decomposed(weight, self.cutoff)[0].shape[1]
            else:  # a mean of products has a higher rank than each
                ranks[bench.name] = decomposed(weight)[0].shape[1] if self.sync == "full" else bench.rank
        return ranks

    def _make_whole(self, replica: Replica, agreed: Mapping[str, Tensor]) -> None:
        benches = {bench.names["weight"]: bench for bench in workshop_of(replica).benches}
        for name, x in agreed.items():
            if name in benches:
                benches[name].merge(x)
            else:
                replica.parameters[name].detach().copy_(x)

    def _rest(self, replica: Replica) -> dict[str, Tensor]:
        """What has no factors."""
        factored = {name for bench in workshop_of(replica).benches for name in bench.names.values()}
        return {name: p for name, p in replica.parameters.items() if name not in factored}

    @property
    def _first(self) -> int:
        """There has been an update when weights are factored: before it, nobody is asked."""
        return max(1, self.after)

    @property
    def _exchange(self) -> DataParallel:
        return DataParallel(self.reducer)
