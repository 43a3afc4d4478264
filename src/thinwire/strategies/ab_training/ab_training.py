from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from ...codecs import Identity
from ...core import Codec, Factoring, Reducer, Replica, Rounds, State, Strategy
from ...core.described import parts_of
from ...core.layer_report import Layer
from ...core.outcome import StepResult
from ...reducers import Learned, as_reducer
from ...topologies import Grouping, Groups, group_of, part_of, within
from ..data_parallel import DataParallel
from ..independent import Independent
from ..units import Unit
from . import synchronization as syncs
from .factored_model import MOMENTS, FactoredModel, LowRankLayer, decomposed
from .synchronization import SYNC, SYNCS, factored_model_of

WEIGHTS, FACTORS = "gradients of weights", "gradients of factors"  # the meter's keys for these bytes


class ABState(NamedTuple):
    step: int
    exchange: dict[str, State]  # the reducers' states, for the parameters that are trained now


@dataclass(frozen=True, repr=False)
class ABTraining(Independent, Factoring):
    """AB-training: matrices become products of two low-rank factors; half of the groups of ranks train A, the others B.

    Training starts with a full-rank phase, in which all ranks average gradients of full-rank weights; a full-rank
    phase also ends each period. In between, ranks average gradients only within their group: of the group's factor,
    and of parameters without factors.
    """

    measured_per_step: ClassVar[bool] = False  # the ranks of layers, and so the bytes, depend on training

    same_arithmetic: ClassVar[bool] = True

    reducer: Codec | Reducer = Identity()  # for gradients, over all ranks and within groups
    after: int = 100  # full-rank steps before weights are first factored
    every: int = 100  # steps of a period; more: groups train independently for longer
    full: int = 10  # steps at the end of a period with full-rank weights on all ranks
    cutoff: float = 0.1  # singular values up to this fraction of the largest are dropped
    sync: str = "only-learned"  # how groups combine their factors at the end of a factored phase: see the docs
    groups: Grouping | None = None  # the first half of them trains A, the others B; None: two groups
    keep: tuple[str, ...] = ()  # patterns of names of layers that stay full-rank
    ends: bool = True  # the first and the last layer stay full-rank
    rebound: int = 10  # steps of learning-rate warm-up after each change
    moments: str = "carry"  # carry the optimizer's moments over to the factors; "reset": drop them

    def __post_init__(self) -> None:
        if any(isinstance(part, Learned) for part in parts_of(as_reducer(self.reducer))):
            raise ValueError(
                f"{self.reducer!r} learns a code of fixed tensors, but ABTraining changes the tensors it exchanges"
            )
        for name, least in (("after", 0), ("every", 1), ("full", 0), ("rebound", 0)):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= least):
                raise ValueError(f"ABTraining takes {name} of {least} steps or more, not {value!r}")
        if self.full >= self.every:
            raise ValueError(f"full={self.full} full-rank steps of every={self.every} steps leave none for factors")
        if not (isinstance(self.cutoff, int | float) and 0 <= self.cutoff < 1):
            raise ValueError(f"ABTraining takes a cutoff from 0 to below 1, not {self.cutoff!r}")
        if self.sync not in SYNCS:
            raise ValueError(f"ABTraining takes a sync of {', '.join(map(repr, SYNCS))}, not {self.sync!r}")
        if self.groups is not None and not isinstance(self.groups, Grouping):
            raise ValueError(f"ABTraining takes groups such as GroupsOf(4) or ByHost(), not {self.groups!r}")
        if not (isinstance(self.keep, tuple) and all(isinstance(name, str) for name in self.keep)):
            raise ValueError(f"ABTraining takes a keep of patterns such as ('head.*',), not {self.keep!r}")
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
        if replica.dtensors:
            raise ValueError(f"{self!r} factors layers, but {next(iter(replica.dtensors))} is split over processes")
        if optimizer is None:
            raise ValueError(f"{self!r} needs the optimizer, whose parameters it changes")
        factored_model = FactoredModel(model, optimizer, self.keep, self.ends)
        parameters, descriptions = dict(replica.parameters), dict(replica.descriptions)
        for entry in factored_model.factorable:
            weight = descriptions[entry.names["weight"]]
            for name, factor in ((entry.names["a"], entry.a), (entry.names["b"], entry.b)):
                parameters[name], descriptions[name] = factor, weight._replace(name=name, end="")
        return replica._replace(parameters=parameters, descriptions=descriptions, prepared=factored_model)

    def release(self, replica: Replica) -> Replica:
        """Restore the model's own layers."""
        if replica.prepared is not None:
            factored_model_of(replica).end()
        return replica._replace(prepared=None)

    def factored(self, replica: Replica) -> dict[str, LowRankLayer]:
        return {} if replica.prepared is None else factored_model_of(replica).factored()

    def dry_run(self) -> tuple[Strategy, int]:
        return DataParallel(self.reducer), 1

    # --- groups and phases

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
        """Whether weights are factored after this number of updates."""
        return step >= self._first and (step - self._first) % self.every < self.every - self.full

    def changes(self, step: int) -> bool:
        """Whether the phase changes after this number of updates: weights are factored, merged, or both."""
        into = (step - self._first) % self.every
        return step >= self._first and (into == 0 or into == self.every - self.full)

    def active(self, replica: Replica) -> Replica:
        """The replica with only the parameters that are trained now."""
        mine, parameters = self.trains(replica), dict(replica.parameters)
        for entry in factored_model_of(replica).factorable:
            trained = "weight" if entry.rank is None else mine
            for which, name in entry.names.items():
                if which != trained:
                    del parameters[name]
        return replica._replace(parameters=parameters)

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return self._exchange.units(self.active(replica))

    def layers(
        self, replica: Replica, state: ABState, dense_bytes: int, payload: Mapping[str, int]
    ) -> dict[str, Layer]:
        return {}  # units change from phase to phase; the meter counts by phase

    def effective(self, replica: Replica) -> Mapping[str, Tensor]:
        """The parameters of the model with full-rank weights."""
        found = dict(replica.parameters)
        for entry in factored_model_of(replica).factorable:
            found[entry.names["weight"]] = entry.matrix().view(entry.module.full_shape)
            del found[entry.names["a"]], found[entry.names["b"]]
        return found

    # --- steps

    def init(self, replica: Replica) -> ABState:
        for entry in factored_model_of(replica).factorable:
            entry.train("weight" if entry.rank is None else self.trains(replica))
        return ABState(0, self._exchange.init(self.active(replica)))

    def before_update(self, replica: Replica, state: ABState) -> Rounds:
        factored_model_of(replica).scale_lr(self.lr_factor(state.step))
        active, split = self.active(replica), self.is_split(state.step)
        group = group_of(self.groups_of(replica.size, replica.hosts), replica.rank)
        group = group if split else tuple(range(replica.size))
        rounds = self._exchange.before_update(part_of(active, group), state.exchange)
        result = yield from within(group, rounds, FACTORS if split else WEIGHTS)
        return StepResult(state._replace(exchange=result.state), result.nonfinite)

    def after_update(self, replica: Replica, state: ABState) -> Rounds:
        yield from ()
        factored_model_of(replica).scale_lr(1.0)
        step = state.step + 1
        if not self.changes(step):
            return StepResult(state._replace(step=step))
        if self.is_split(state.step):
            others, factored_model = self._unfactored(replica), factored_model_of(replica)
            moments = factored_model.moments(others)
            agreed = yield from self.agreed(replica, moments)
            factored_model.set_moments(others, moments)
            nonfinite = syncs.not_finite(agreed)
            if nonfinite:
                return StepResult(state, nonfinite)
            self._merge(replica, agreed)
        if self.is_split(step):
            rounds = syncs.split(replica, self.cutoff, self.moments)
            nonfinite = yield from within(tuple(range(replica.size)), rounds, SYNC)
            if nonfinite:
                return StepResult(state, nonfinite)
        return StepResult(self.init(replica)._replace(step=step))

    def lr_factor(self, step: int) -> float:
        """The factor on the learning rate after this number of updates: a warm-up after each change."""
        if step < self._first:
            return 1.0
        into = (step - self._first) % self.every
        since = into if into < self.every - self.full else into - (self.every - self.full)
        return min(1.0, since / self.rebound) if self.rebound else 1.0

    def agreed(self, replica: Replica, more: dict[str, Tensor] | None = None) -> Rounds:
        """The full-rank parameters that all groups agree on, by name. Only `more` is overwritten, by its mean."""
        groups = self.groups_of(replica.size, replica.hosts)
        full = {name: x.detach().clone() for name, x in self.effective(replica).items()}
        return (yield from syncs.agreed(replica, self.sync, groups, self.trains(replica), full, more))

    def ranks_of_layers(self, replica: Replica, model: Any) -> dict[str, int]:
        ranks = {}
        for entry in factored_model_of(replica).factorable:
            weight = model.get_parameter(entry.names["weight"]).detach().flatten(1)
            if entry.rank is None:
                ranks[entry.name] = decomposed(weight, self.cutoff)[0].shape[1]
            else:  # the mean of products has a higher rank than each product
                ranks[entry.name] = decomposed(weight)[0].shape[1] if self.sync == "full" else entry.rank
        return ranks

    def _merge(self, replica: Replica, agreed: Mapping[str, Tensor]) -> None:
        factorable = {entry.names["weight"]: entry for entry in factored_model_of(replica).factorable}
        for name, x in agreed.items():
            if name in factorable:
                factorable[name].merge(x)
            else:
                replica.parameters[name].detach().copy_(x)

    def _unfactored(self, replica: Replica) -> dict[str, Tensor]:
        """The parameters without factors."""
        factored = {name for entry in factored_model_of(replica).factorable for name in entry.names.values()}
        return {name: p for name, p in replica.parameters.items() if name not in factored}

    @property
    def _first(self) -> int:
        """Number of updates before weights are first factored: at least 1, as phases change after an update."""
        return max(1, self.after)

    @property
    def _exchange(self) -> DataParallel:
        return DataParallel(self.reducer)
