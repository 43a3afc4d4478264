from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Message, Reducer, Replica, Reply, Rounds, State, lockstep
from ..core.described import parts_of
from ..core.lazy import materialize
from ..core.outcome import NonFinite, StepResult
from ..reducers import (
    EF21,
    Average,
    Difference,
    FittedFloat,
    LeaderTopK,
    Learned,
    PowerIteration,
    PowerSGD,
    Server,
    Sharded,
    as_reducer,
)
from ..topologies import Graph, Ring, Topology
from .decentralized import Decentralized, check_rate, check_topology, graph_of
from .units import Unit, check_fuse_below, not_finite, units_of, watched

# What comes of these is right only if all ranks hear the same: they agree on a basis or a scale, or share work.
OF_ALL = (Learned, LeaderTopK, FittedFloat, PowerIteration, PowerSGD, Server, Sharded)


class GossipState(NamedTuple):
    round: int  # of a graph that varies
    units: dict[str, State]


@dataclass(frozen=True, repr=False)
class Gossip(Decentralized):
    """Each replica takes a step of its own, and mixes its parameters with those of its neighbors.

    What is said without loss is said of the parameters that gradients were computed at, as D-PSGD does. What loses
    something is said after the update, as CHOCO-SGD (`Difference`) and DeepSqueeze (`ErrorFeedback`) do.
    """

    reducer: Codec | Reducer
    topology: Topology = Ring()
    rate: float = 1.0  # of the way to the neighbors' mean; lower: steadier, if much is lost on the way
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        for part in parts_of(as_reducer(self.reducer)):
            if isinstance(part, OF_ALL):
                raise ValueError(
                    f"Gossip cannot take {part!r}, which needs all ranks to hear the same, as neighbors do not "
                    "(for factors of matrices, there is EdgeGossip(PowerIteration(...)))"
                )
            if isinstance(part, EF21):
                raise ValueError(f"Gossip takes {Difference(part.inner)!r}, and not {part!r}, which is for gradients")
        check_topology("Gossip", self.topology)
        check_rate("Gossip", self.rate)
        check_fuse_below("Gossip", self.fuse_below)

    @property
    def lossless(self) -> bool:
        return as_reducer(self.reducer) == Average()

    def graph(self, size: int) -> Graph:
        graph = graph_of(self.topology, size)
        if not graph.doubly_stochastic:
            raise ValueError(
                f"{self.topology!r} of {size} ranks weighs what ranks hear by more or less than 1: gossip would drift. "
                "PushSum(...) is made for such graphs"
            )
        if graph.varies and any(isinstance(part, Difference) for part in parts_of(self.reducer)):
            raise ValueError(
                f"{self.reducer!r} adds up what the same neighbors say, and {self.topology!r} changes them"
            )
        return graph

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

    def init(self, replica: Replica) -> GossipState:
        self.graph(replica.size)
        return GossipState(0, {unit.key: _known(unit, replica) for unit in self.units(replica)})

    def before_update(self, replica: Replica, state: GossipState) -> Rounds:
        return (yield from self._mix(replica, state) if self.lossless else super().before_update(replica, state))

    def after_update(self, replica: Replica, state: GossipState) -> Rounds:
        return (yield from super().after_update(replica, state) if self.lossless else self._mix(replica, state))

    def _mix(self, replica: Replica, state: GossipState) -> Rounds:
        units, peers = self.units(replica), self.graph(replica.size).row(replica.rank, state.round)
        talks = [(peers, _mixed(unit, replica.parameters, state.units[unit.key], self.rate)) for unit in units]
        outcomes = yield from lockstep(talks)
        states = {unit.key: new for unit, (new, _) in zip(units, outcomes, strict=True)}
        return StepResult(GossipState(state.round + 1, states), tuple(lost for _, lost in outcomes if lost))

    def unit_states(self, state: GossipState) -> dict[str, State]:
        return state.units

    def rejoin(self, replica: Replica) -> Rounds:
        """What each knows of the others no longer holds: neighbors tell each other all."""
        units, peers = self.units(replica), self.graph(replica.size).row(replica.rank)
        outcomes = yield from lockstep([(peers, _told(unit, replica)) for unit in units])
        return StepResult(GossipState(0, {unit.key: new for unit, new in zip(units, outcomes, strict=True)}))


def _known(unit: Unit, replica: Replica) -> State:
    """Replicas begin alike, so all know what all have."""
    x = unit.gathered(replica.parameters)
    if isinstance(unit.reducer, Difference):
        return unit.reducer.knowing(x, unit.seed)
    return unit.reducer.init(x, unit.seed)


def _told(unit: Unit, replica: Replica) -> Generator[Message, Reply[Tensor], State]:
    state = _known(unit, replica)
    if not isinstance(unit.reducer, Difference):
        return state
    heard = yield from Average().reduce(state.mine, 0)
    return state._replace(theirs=materialize(heard[0].reduced).clone())


def _mixed(
    unit: Unit, parameters: Mapping[str, Tensor], state: State, rate: float
) -> Generator[Message, Reply[Tensor], tuple[State, NonFinite | None]]:
    """Move a unit's parameters towards the neighbors'; returns its next state."""
    x = unit.gathered(parameters)
    done = yield from watched(unit.reducer.reduce(x, state), unit.key)
    if not (done.said and done.heard):
        return state, NonFinite(unit.names, () if done.said else not_finite(unit.names, parameters), "parameters")
    way = torch.sub(materialize(done.reply.reduced), materialize(done.reply.sent))
    unit.write(way.mul_(rate).add_(x) if rate != 1 else way.add_(x), parameters)
    return done.state, None
