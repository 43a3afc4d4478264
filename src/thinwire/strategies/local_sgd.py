import warnings
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import RandomK, TopK
from ..core import Codec, Overlapping, Reducer, Replica, Rounds, State, Strategy, lockstep
from ..core.described import parts_of
from ..core.outcome import NonFinite, StepResult
from ..reducers import Average, ErrorFeedback, as_reducer, servers
from ..reducers.forms import served
from ..topologies import all_ranks, within
from .data_parallel import DataParallel
from .independent import Independent
from .outer_sgd import OuterSGD
from .units import Unit, check_fuse_below, checked_exchange, units_of

AVERAGED = DataParallel(Average())
WARM_UP = "warming up"  # the unit under which the meter counts the bytes of the first `after` steps


class LocalSGDState(NamedTuple):
    step: int  # updates so far
    units: dict[str, State]  # the reducers' states
    anchors: dict[str, Tensor]  # the common model of the last synchronization, the same on all ranks
    velocities: dict[str, Tensor]  # of the outer optimizer, if it has momentum
    at_launch: dict[str, Tensor] | None = None  # this replica's parameters when the synchronization in flight started


class Synchronized(NamedTuple):
    """The result of a synchronization, by unit."""

    deltas: dict[str, Tensor]  # pseudo-gradients: the anchor minus the mean of the replicas
    states: dict[str, State]
    nonfinite: tuple[NonFinite, ...]


@dataclass(frozen=True, repr=False)
class LocalSGD(Independent, Overlapping):
    """Local SGD: replicas take local steps, and synchronize every `every` steps.

    The anchor is the common model from which all replicas start their local steps. To synchronize, replicas average
    their pseudo-gradients (anchor minus current parameters). An outer optimizer applies this mean to the anchor as a
    gradient. All replicas continue from the new anchor. With the default outer optimizer, the new anchor is the mean of
    the replicas: this is local SGD. With Nesterov momentum it is DiLoCo. With `delay`, replicas take that number of
    local steps during the exchange. Each replica then continues from the new anchor plus the change by these steps.

    Examples:
        >>> from thinwire import Identity, LocalSGD
        >>> local = LocalSGD(Identity(), every=4)
        >>> [step for step in range(1, 13) if local.will_communicate(step)]
        [4, 8, 12]
    """

    mean_of_all: ClassVar[bool] = True

    reducer: Codec | Reducer  # averages the pseudo-gradients
    every: int = 10  # steps between synchronizations; more: fewer bytes, and replicas drift further apart
    outer: OuterSGD = OuterSGD()  # the outer optimizer; by default it moves the anchor to the mean of the replicas
    delay: int = 0  # local steps that an exchange may take; more: hides a slower link, but its result is applied later
    after: int = 0  # steps of dense gradient averaging before local steps begin: post-local SGD
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        reducer = as_reducer(self.reducer)
        if not (isinstance(self.every, int) and self.every >= 1):
            raise ValueError(f"LocalSGD synchronizes every 1 step or more, not {self.every!r}")
        if not isinstance(self.outer, OuterSGD):
            raise ValueError(f"LocalSGD takes an outer optimizer such as OuterSGD(0.7), not {self.outer!r}")
        if not (isinstance(self.delay, int) and 0 <= self.delay <= self.every):
            raise ValueError(f"LocalSGD takes a delay from 0 steps to every={self.every}, not {self.delay!r}")
        if not (isinstance(self.after, int) and self.after >= 0):
            raise ValueError(f"LocalSGD begins after 0 steps or more, not {self.after!r}")
        check_fuse_below("LocalSGD", self.fuse_below)
        kinds = {type(part) for part in parts_of(reducer)}
        if self.outer.momentum and ErrorFeedback in kinds and kinds & {TopK, RandomK}:
            warnings.warn(
                f"{self!r} is known to train badly: residuals are sent too late for outer momentum. "
                "Use one of the two: error feedback with OuterSGD(), as in sparseloco, or momentum without it",
                stacklevel=4,
            )

    @property
    def period(self) -> int:
        return self.every

    @property
    def warm_up(self) -> int:
        return self.after

    def local_gradients(self, state: LocalSGDState) -> bool:
        return state.step >= self.after

    def synchronizes(self, step: int) -> bool:
        """Whether replicas synchronize after this number of updates."""
        return step > self.after and (step - self.after) % self.every == 0

    def will_communicate(self, step: int) -> bool:
        return step <= self.after or self.synchronizes(step) or self.lands(step)

    def quiet(self, step: int) -> bool:
        return bool(self.delay) and step >= self.after

    def launches(self, step: int) -> bool:
        return bool(self.delay) and self.synchronizes(step)

    def lands(self, step: int) -> bool:
        return bool(self.delay) and self.synchronizes(step - self.delay)

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

    def settled(self) -> Strategy:
        return replace(self, after=0)

    def init(self, replica: Replica) -> LocalSGDState:
        anchors = {unit.key: unit.copied(replica.parameters) for unit in self.units(replica)}
        states = {unit.key: unit.reducer.init(anchors[unit.key], unit.seed) for unit in self.units(replica)}
        velocities = {key: torch.zeros_like(x) for key, x in anchors.items()} if self.outer.momentum else {}
        return LocalSGDState(0, states, anchors, velocities)

    def before_update(self, replica: Replica, state: LocalSGDState) -> Rounds:
        if self.local_gradients(state):
            return (yield from super().before_update(replica, state))
        all_ranks = tuple(range(replica.size))
        plain = self._plain()
        result = yield from within(all_ranks, plain.before_update(replica, plain.init(replica)), WARM_UP)
        return StepResult(state, result.nonfinite)

    def _plain(self) -> DataParallel:
        """Dense gradient averaging for the first `after` steps, through the same server if there is one."""
        server = min(servers(as_reducer(self.reducer)), default=None)
        return AVERAGED if server is None else DataParallel(served(Average(), server))

    def after_update(self, replica: Replica, state: LocalSGDState) -> Rounds:
        yield from ()
        state = state._replace(step=state.step + 1)
        if state.step == self.after:
            anchors = {unit.key: unit.copied(replica.parameters) for unit in self.units(replica)}
            return StepResult(state._replace(anchors=anchors))
        if self.delay or not self.synchronizes(state.step):
            return StepResult(state)
        state, rounds = self.launch(replica, state)
        return StepResult(*self.land(replica, state, (yield from rounds)))

    def launch(self, replica: Replica, state: LocalSGDState) -> tuple[LocalSGDState, Rounds]:
        units = self.units(replica)
        here = {unit.key: unit.copied(replica.parameters) for unit in units}
        return state._replace(at_launch=here), _synchronize(units, state.anchors, here, state.units, replica)

    def in_flight(self, state: LocalSGDState) -> Synchronized:
        return Synchronized(state.anchors, state.units, ())

    def land(
        self, replica: Replica, state: LocalSGDState, arrived: Synchronized
    ) -> tuple[LocalSGDState, tuple[NonFinite, ...]]:
        """Step the anchor with the outer optimizer; add the local steps taken during the exchange."""
        assert state.at_launch is not None, "no synchronization was launched"
        if arrived.nonfinite:
            return state._replace(at_launch=None), arrived.nonfinite
        anchors, velocities = {}, {}
        for unit in self.units(replica):
            anchor, velocity = self.outer.step(
                state.anchors[unit.key], arrived.deltas[unit.key], state.velocities.get(unit.key)
            )
            target = anchor
            if self.delay:
                target = unit.copied(replica.parameters).sub_(state.at_launch[unit.key]).add_(anchor)
            unit.write(target, replica.parameters)
            anchors[unit.key] = anchor
            if velocity is not None:
                velocities[unit.key] = velocity
        return LocalSGDState(state.step, arrived.states, anchors, velocities), ()

    def reanchored(self, replica: Replica, state: LocalSGDState) -> LocalSGDState:
        """Make the current parameters the anchor, for a caller that made them equal just after a synchronization."""
        return state._replace(anchors={unit.key: unit.copied(replica.parameters) for unit in self.units(replica)})

    def unit_states(self, state: LocalSGDState) -> dict[str, State]:
        return state.units


def _synchronize(
    units: tuple[Unit, ...],
    anchors: dict[str, Tensor],
    here: dict[str, Tensor],
    states: dict[str, State],
    replica: Replica,
) -> Rounds:
    peers = all_ranks(replica.size)
    conversations = [unit.reducer.reduce(anchors[unit.key] - here[unit.key], states[unit.key]) for unit in units]
    received = yield from lockstep(
        [(peers, checked_exchange(unit, c, replica.parameters)) for unit, c in zip(units, conversations, strict=True)]
    )
    return Synchronized(
        {unit.key: delta.reduced for unit, delta in zip(units, received, strict=True)},
        {unit.key: delta.state for unit, delta in zip(units, received, strict=True)},
        tuple(delta.nonfinite for delta in received if delta.nonfinite),
    )
