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

# These need every rank to receive the same: they agree on a basis or a scale, or share work.
NEEDS_ALL_RANKS = (Learned, LeaderTopK, FittedFloat, PowerIteration, PowerSGD, Server, Sharded)


class GossipState(NamedTuple):
    round: int  # selects the phase of a time-varying graph
    units: dict[str, State]


@dataclass(frozen=True, repr=False)
class Gossip(Decentralized):
    """Gossip SGD: after each local step, a replica averages its parameters with those of its neighbors.

    Without compression, parameters are mixed before the update, as in D-PSGD. With lossy compression, they are mixed
    after it, as in CHOCO-SGD (`Difference`) and DeepSqueeze (`ErrorFeedback`).
    """

    reducer: Codec | Reducer
    topology: Topology = Ring()
    rate: float = 1.0  # fraction by which a replica moves to its neighbors' mean; lower: for stronger compression
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        for part in parts_of(as_reducer(self.reducer)):
            if isinstance(part, NEEDS_ALL_RANKS):
                raise ValueError(
                    f"Gossip cannot take {part!r}: it needs every rank to receive the same, and each rank receives "
                    "from its own neighbors (for low-rank gossip, take EdgeGossip(PowerIteration(...)))"
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
                f"the mixing matrix of {self.topology!r} with {size} ranks is not doubly stochastic, so Gossip would "
                "not keep the mean of the replicas. PushSum(...) works on such graphs"
            )
        if graph.varies and any(isinstance(part, Difference) for part in parts_of(self.reducer)):
            raise ValueError(
                f"{self.reducer!r} sums what the same neighbors send, but the neighbors in {self.topology!r} change"
            )
        return graph

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

    def init(self, replica: Replica) -> GossipState:
        self.graph(replica.size)
        return GossipState(0, {unit.key: _initial(unit, replica) for unit in self.units(replica)})

    def before_update(self, replica: Replica, state: GossipState) -> Rounds:
        return (yield from self._mix(replica, state) if self.lossless else super().before_update(replica, state))

    def after_update(self, replica: Replica, state: GossipState) -> Rounds:
        return (yield from super().after_update(replica, state) if self.lossless else self._mix(replica, state))

    def _mix(self, replica: Replica, state: GossipState) -> Rounds:
        units, peers = self.units(replica), self.graph(replica.size).row(replica.rank, state.round)
        conversations = [(peers, _mixed(unit, replica.parameters, state.units[unit.key], self.rate)) for unit in units]
        results = yield from lockstep(conversations)
        states = {unit.key: new for unit, (new, _) in zip(units, results, strict=True)}
        return StepResult(
            GossipState(state.round + 1, states), tuple(nonfinite for _, nonfinite in results if nonfinite)
        )

    def unit_states(self, state: GossipState) -> dict[str, State]:
        return state.units

    def rejoin(self, replica: Replica) -> Rounds:
        """The copies of neighbors' parameters are out of date: neighbors send theirs in full."""
        units, peers = self.units(replica), self.graph(replica.size).row(replica.rank)
        states = yield from lockstep([(peers, _resynchronized(unit, replica)) for unit in units])
        return StepResult(GossipState(0, {unit.key: new for unit, new in zip(units, states, strict=True)}))


def _initial(unit: Unit, replica: Replica) -> State:
    """Replicas are identical at the start, so every rank has exact copies of its neighbors."""
    x = unit.gathered(replica.parameters)
    if isinstance(unit.reducer, Difference):
        return unit.reducer.init_at(x, unit.seed)
    return unit.reducer.init(x, unit.seed)


def _resynchronized(unit: Unit, replica: Replica) -> Generator[Message, Reply[Tensor], State]:
    state = _initial(unit, replica)
    if not isinstance(unit.reducer, Difference):
        return state
    reply, _ = yield from Average().reduce(state.mine, 0)
    return state._replace(theirs=materialize(reply.reduced).clone())


def _mixed(
    unit: Unit, parameters: Mapping[str, Tensor], state: State, rate: float
) -> Generator[Message, Reply[Tensor], tuple[State, NonFinite | None]]:
    """Move a unit's parameters towards the neighbors' mean; returns its next state."""
    x = unit.gathered(parameters)
    done = yield from watched(unit.reducer.reduce(x, state), unit.key)
    if not (done.sent_finite and done.received_finite):
        return state, NonFinite(
            unit.names, () if done.sent_finite else not_finite(unit.names, parameters), "parameters"
        )
    difference = torch.sub(materialize(done.reply.reduced), materialize(done.reply.sent))
    unit.write(difference.mul_(rate).add_(x) if rate != 1 else difference.add_(x), parameters)
    return done.state, None
