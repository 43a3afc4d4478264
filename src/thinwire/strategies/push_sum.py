from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Message, Overlapping, Peers, Replica, Reply, Rounds, State, lockstep
from ..core.lazy import materialize
from ..core.outcome import NonFinite, StepResult
from ..core.precision import working
from ..reducers import Average
from ..topologies import Exponential, Graph, Topology
from .decentralized import Decentralized, check_topology, graph_of
from .units import Unit, check_fuse_below, checked_exchange, units_of


class PushSumState(NamedTuple):
    weight: float  # parameters times weight is this rank's share of the sum; all weights sum to the world size
    round: int  # selects the phase of a time-varying graph
    seeds: dict[str, State]
    start: dict[str, Tensor] | None = None  # the parameters before the update, if the weight is not 1


class Arrived(NamedTuple):
    """The result of a push: the shares received, plus the compression error of the shares sent."""

    weight: float
    units: dict[str, Tensor]
    seeds: dict[str, State]
    nonfinite: tuple[NonFinite, ...]


@dataclass(frozen=True, repr=False)
class PushSum(Decentralized, Overlapping):
    """Stochastic gradient push (SGP; Assran et al., 2019): after each local step, ranks push shares of their parameters
    along directed edges.

    The shares that a rank receives need not sum to one. A push-sum weight is sent with them, and parameters are always
    divided by it. With `overlap`, messages are in flight while replicas compute (overlapped SGP): shares sent after an
    update are added `overlap` steps later.
    """

    codec: Codec = Identity()  # its compression error stays with the sender
    topology: Topology = Exponential()
    overlap: int = 0  # steps that a message may take; higher: hides a slower link, and models drift further apart
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec):
            raise ValueError(f"PushSum takes a codec, not {self.codec!r}")
        check_topology("PushSum", self.topology)
        if not (isinstance(self.overlap, int) and self.overlap >= 0):
            raise ValueError(f"PushSum takes an overlap of 0 steps or more, not {self.overlap!r}")
        check_fuse_below("PushSum", self.fuse_below)

    @property
    def lossless(self) -> bool:
        return self.codec == Identity()

    @property
    def period(self) -> int:
        return max(1, self.overlap)

    def quiet(self, step: int) -> bool:
        return bool(self.overlap)

    def launches(self, step: int) -> bool:
        return bool(self.overlap) and step % self.overlap == 0

    def lands(self, step: int) -> bool:
        return self.launches(step)

    def graph(self, size: int) -> Graph:
        return graph_of(self.topology, size)

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.codec, self.fuse_below)

    def init(self, replica: Replica) -> PushSumState:
        self.graph(replica.size)
        return PushSumState(1.0, 0, {unit.key: unit.seed for unit in self.units(replica)})

    def before_update(self, replica: Replica, state: PushSumState) -> Rounds:
        """If the weight is not 1, keep the parameters: `after_update` divides the optimizer's step by the weight."""
        yield from ()
        if state.weight == 1:
            return StepResult(state)
        start = {name: p.detach().clone() for name, p in replica.parameters.items()}
        return StepResult(state._replace(start=start))

    def after_update(self, replica: Replica, state: PushSumState) -> Rounds:
        if state.start is not None:
            for name, p in replica.parameters.items():
                # The optimizer's step is for parameters times weight.
                before, step = state.start[name], p.detach() - state.start[name]
                p.detach().copy_(before + step / state.weight)
        state = state._replace(start=None)
        if self.overlap:
            return StepResult(state)
        state, rounds = self.launch(replica, state)
        return StepResult(*self.land(replica, state, (yield from rounds)))

    def launch(self, replica: Replica, state: PushSumState) -> tuple[PushSumState, Rounds]:
        """Send shares. The local parameters stay the same, as share and weight shrink by the same factor."""
        graph, units = self.graph(replica.size), self.units(replica)
        peers, kept = graph.others(replica.rank, state.round), graph.weight(replica.rank, replica.rank, state.round)
        shares = {unit.key: _share(unit, replica, state.weight) for unit in units}
        rounds = _push(units, peers, shares, state, 1 - kept, replica)
        return state._replace(weight=state.weight * kept, round=state.round + 1), rounds

    def in_flight(self, state: PushSumState) -> Arrived:
        return Arrived(0.0, dict.fromkeys(state.seeds), state.seeds, ())  # type: ignore[arg-type]  # any tensors

    def land(
        self, replica: Replica, state: PushSumState, arrived: Arrived
    ) -> tuple[PushSumState, tuple[NonFinite, ...]]:
        """Add the shares received."""
        if arrived.nonfinite:
            return state, arrived.nonfinite
        weight = state.weight + arrived.weight
        for unit in self.units(replica):
            total = _share(unit, replica, state.weight).add_(arrived.units[unit.key])
            unit.write(total.div_(weight) if weight != 1 else total, replica.parameters)
        return state._replace(weight=weight, seeds=arrived.seeds), ()

    def rejoin(self, replica: Replica) -> Rounds:
        """Parameters are valid whatever was in flight; every survivor gets weight 1 again."""
        yield from ()
        return StepResult(self.init(replica))

    def weight_of(self, state: PushSumState) -> float:
        return state.weight


def _share(unit: Unit, replica: Replica, weight: float) -> Tensor:
    """A copy of a unit's parameters times their weight."""
    x = unit.gathered(replica.parameters)
    return x.to(working(x.dtype)) * weight if weight != 1 else x.to(working(x.dtype), copy=True)


def _push(
    units: tuple[Unit, ...],
    peers: Peers,
    shares: dict[str, Tensor],
    state: PushSumState,
    pushed: float,
    replica: Replica,
) -> Rounds:
    weight = torch.tensor([state.weight], dtype=torch.float64, device=next(iter(replica.parameters.values())).device)
    conversations = [
        (peers, _push_unit(unit, shares[unit.key], state.seeds[unit.key], pushed, replica)) for unit in units
    ]
    *results, received = yield from lockstep([*conversations, (peers, _push_weight(weight, units[0].key))])
    return Arrived(
        float(received),
        {unit.key: added for unit, (added, _, _) in zip(units, results, strict=True)},
        {unit.key: seed for unit, (_, seed, _) in zip(units, results, strict=True)},
        tuple(nonfinite for _, _, nonfinite in results if nonfinite),
    )


def _push_weight(weight: Tensor, unit: str) -> Generator[Message, Reply[Tensor], Tensor]:
    reply = yield Message(weight, Identity(), unit=unit)
    return reply.reduced


def _push_unit(
    unit: Unit, x: Tensor, seed: State, pushed: float, replica: Replica
) -> Generator[Message, Reply[Tensor], tuple[Tensor, State, NonFinite | None]]:
    assert isinstance(unit.reducer, Average), "PushSum takes a codec, not a reducer"
    received = yield from checked_exchange(unit, unit.reducer.reduce(x, seed), replica.parameters)
    added = received.reduced.to(x.dtype)
    if unit.reducer.codec != Identity():
        added = added + (x - materialize(received.sent)) * pushed
    return added, received.state, received.nonfinite
