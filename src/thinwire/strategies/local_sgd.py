import warnings
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..codecs import RandomK, TopK
from ..core import Codec, Overlapping, Reducer, Replica, Rounds, State, lockstep
from ..core.described import parts_of
from ..core.outcome import NonFinite, StepResult
from ..reducers import Average, ErrorFeedback, as_reducer, servers
from ..reducers.forms import served
from ..topologies import all_ranks, within
from .data_parallel import DataParallel
from .independent import Independent
from .outer_sgd import OuterSGD
from .units import Unit, check_fuse_below, spoken, units_of

AVERAGED = DataParallel(Average())
WARM_UP = "warming up"  # what the meter counts its bytes under


class LocalSGDState(NamedTuple):
    step: int
    units: dict[str, State]
    anchors: dict[str, Tensor]  # what all replicas were when they last met
    velocities: dict[str, Tensor]  # of the outer optimizer, if it has momentum
    left: dict[str, Tensor] | None = None  # what this replica was when a meeting began that has not ended


class Synchronized(NamedTuple):
    """What came of a meeting, by unit."""

    ways: dict[str, Tensor]  # from where replicas are on average back to where they met before
    states: dict[str, State]
    lost: tuple[NonFinite, ...]


@dataclass(frozen=True, repr=False)
class LocalSGD(Independent, Overlapping):
    """Each replica takes steps of its own; every so often they meet, and all go on from one point.

    What they say is the way back to where they last met. An outer optimizer takes its mean for a gradient: as it is,
    that is local SGD; with Nesterov momentum, DiLoCo. With `delay`, the meeting goes on while replicas compute: so many
    steps later, each goes on from where the meeting ended, with what it has done meanwhile.
    """

    reducer: Codec | Reducer
    every: int = 10  # steps from one meeting to the next; more: fewer bytes, and replicas drift further apart
    outer: OuterSGD = OuterSGD()
    delay: int = 0  # steps that a meeting may take; more: hides a slower link, and what is said is older
    after: int = 0  # steps at the beginning with averaged gradients, as dense: post-local SGD
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        reducer = as_reducer(self.reducer)
        if not (isinstance(self.every, int) and self.every >= 1):
            raise ValueError(f"LocalSGD meets every 1 step or more, not {self.every!r}")
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
                f"{self!r} is known to train badly: what feedback brings late, outer momentum has gone past. "
                "Leave out one of them: OuterSGD() with feedback, as sparseloco does, or momentum without",
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

    def meets(self, step: int) -> bool:
        """Whether replicas meet after so many updates."""
        return step > self.after and (step - self.after) % self.every == 0

    def will_communicate(self, step: int) -> bool:
        return step <= self.after or self.meets(step) or self.lands(step)

    def quiet(self, step: int) -> bool:
        return bool(self.delay) and step >= self.after

    def launches(self, step: int) -> bool:
        return bool(self.delay) and self.meets(step)

    def lands(self, step: int) -> bool:
        return bool(self.delay) and self.meets(step - self.delay)

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

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
        outcome = yield from within(all_ranks, plain.before_update(replica, plain.init(replica)), WARM_UP)
        return StepResult(state, outcome.lost)

    def _plain(self) -> DataParallel:
        """What warms up: by way of the same server, if there is one."""
        at = min(servers(as_reducer(self.reducer)), default=None)
        return AVERAGED if at is None else DataParallel(served(Average(), at))

    def after_update(self, replica: Replica, state: LocalSGDState) -> Rounds:
        yield from ()
        state = state._replace(step=state.step + 1)
        if state.step == self.after:
            anchors = {unit.key: unit.copied(replica.parameters) for unit in self.units(replica)}
            return StepResult(state._replace(anchors=anchors))
        if self.delay or not self.meets(state.step):
            return StepResult(state)
        state, talk = self.launch(replica, state)
        return StepResult(*self.land(replica, state, (yield from talk)))

    def launch(self, replica: Replica, state: LocalSGDState) -> tuple[LocalSGDState, Rounds]:
        units = self.units(replica)
        left = {unit.key: unit.copied(replica.parameters) for unit in units}
        return state._replace(left=left), _meeting(units, state.anchors, left, state.units, replica)

    def in_flight(self, state: LocalSGDState) -> Synchronized:
        return Synchronized(state.anchors, state.units, ())

    def land(
        self, replica: Replica, state: LocalSGDState, arrived: Synchronized
    ) -> tuple[LocalSGDState, tuple[NonFinite, ...]]:
        """Go to where the outer optimizer says, and by what was done meanwhile from there."""
        assert state.left is not None, "it was launched"
        if arrived.lost:
            return state._replace(left=None), arrived.lost
        anchors, velocities = {}, {}
        for unit in self.units(replica):
            anchor, velocity = self.outer.step(
                state.anchors[unit.key], arrived.ways[unit.key], state.velocities.get(unit.key)
            )
            there = anchor
            if self.delay:
                there = unit.copied(replica.parameters).sub_(state.left[unit.key]).add_(anchor)
            unit.write(there, replica.parameters)
            anchors[unit.key] = anchor
            if velocity is not None:
                velocities[unit.key] = velocity
        return LocalSGDState(state.step, arrived.states, anchors, velocities), ()

    def moved(self, replica: Replica, state: LocalSGDState) -> LocalSGDState:
        """All have been moved alike, by someone else, right after a meeting: that is where they met now."""
        return state._replace(anchors={unit.key: unit.copied(replica.parameters) for unit in self.units(replica)})

    def unit_states(self, state: LocalSGDState) -> dict[str, State]:
        return state.units


def _meeting(
    units: tuple[Unit, ...],
    anchors: dict[str, Tensor],
    left: dict[str, Tensor],
    states: dict[str, State],
    replica: Replica,
) -> Rounds:
    peers = all_ranks(replica.size)
    said = [unit.reducer.reduce(anchors[unit.key] - left[unit.key], states[unit.key]) for unit in units]
    heard = yield from lockstep(
        [(peers, spoken(unit, way, replica.parameters)) for unit, way in zip(units, said, strict=True)]
    )
    return Synchronized(
        {unit.key: way.reduced for unit, way in zip(units, heard, strict=True)},
        {unit.key: way.state for unit, way in zip(units, heard, strict=True)},
        tuple(way.lost for way in heard if way.lost),
    )
