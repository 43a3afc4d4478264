from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from ..core import Codec, Message, Peers, Reducer, Replica, Reply, Rounds, State, lockstep
from ..core.lazy import Lazy
from ..core.outcome import NonFinite, StepResult
from ..core.precision import working
from ..reducers import Average, PowerIteration, as_reducer
from ..topologies import Graph, Ring, Topology
from .decentralized import Decentralized, check_rate, check_topology, graph_of
from .units import Unit, check_fuse_below, not_finite, units_of, watched


class EdgeState(NamedTuple):
    steps: int
    edges: dict[str, dict[str, State]]  # by edge, then by unit; both ends of an edge have the same state


@dataclass(frozen=True, repr=False)
class EdgeGossip(Decentralized):
    """Gossip on differences: after each local step, the ends of every edge compress the difference of their models.

    With `PowerIteration`, this is PowerGossip (Vogels et al., 2020). Both ends of an edge keep the same low-rank
    factors of the difference, and every message improves one factor. Further iterations in a step work on the residual
    of the earlier ones. Vectors, and matrices that low-rank factors hardly compress, are sent dense.
    """

    reducer: Codec | Reducer
    topology: Topology = Ring()
    rate: float = 1.0  # fraction by which replicas move to their neighbors' mean; needs no tuning
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        reducer = as_reducer(self.reducer)
        linear = isinstance(reducer, Average) and reducer.codec.linear
        if not (linear or isinstance(reducer, PowerIteration)):
            raise ValueError(f"EdgeGossip takes PowerIteration(...) or a linear codec, not {self.reducer!r}")
        check_topology("EdgeGossip", self.topology)
        check_rate("EdgeGossip", self.rate)
        check_fuse_below("EdgeGossip", self.fuse_below)

    @property
    def iterations(self) -> int:
        return self.reducer.iterations if isinstance(self.reducer, PowerIteration) else 1

    @property
    def lossless(self) -> bool:
        return as_reducer(self.reducer) == Average()

    def graph(self, size: int) -> Graph:
        graph = graph_of(self.topology, size)
        if graph.varies or not graph.symmetric:
            raise ValueError(
                f"EdgeGossip keeps a state per edge, so edges must be symmetric and fixed; {self.topology!r} has "
                "one-way or changing edges: take Ring(), Torus(), ..."
            )
        return graph

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

    def init(self, replica: Replica) -> EdgeState:
        graph, units = self.graph(replica.size), self.units(replica)
        return EdgeState(0, {edge.topic: _started(edge, units, replica) for edge in graph.edges_of(replica.rank)})

    def before_update(self, replica: Replica, state: EdgeState) -> Rounds:
        if state.steps == 0:  # replicas are identical at the start
            return StepResult(state._replace(steps=1))
        edges, units = self.graph(replica.size).edges_of(replica.rank), self.units(replica)
        states = {topic: dict(of_units) for topic, of_units in state.edges.items()}
        work = {unit.key: _work(unit, replica) for unit in units}
        nonfinite: list[NonFinite] = []
        for iteration in range(self.iterations):
            sent = [unit for unit in units if not (iteration and unit.reducer == Average())]
            pairs = [(unit, edge) for unit in sent for edge in edges]
            conversations = [(e, _difference(u, work[u.key], replica, states[e.topic][u.key])) for u, e in pairs]
            for (unit, edge), (new, found) in zip(pairs, (yield from lockstep(conversations)), strict=True):
                states[edge.topic][unit.key] = new
                if isinstance(found, NonFinite):
                    nonfinite.append(found)
                else:
                    found.add_to(work[unit.key], self._weight(replica, edge))
        if nonfinite:
            return StepResult(state, tuple(nonfinite))
        for unit in units:
            unit.write(work[unit.key], replica.parameters)
        return StepResult(EdgeState(state.steps + 1, states))

    def _weight(self, replica: Replica, edge: Peers) -> float:
        """Weight of the difference, higher minus lower rank: the lower rank adds it, the higher rank subtracts it."""
        (low, _), (high, _) = edge.weights
        weight = self.rate * self.graph(replica.size).weight(low, high)
        return weight if replica.rank == low else -weight

    def rejoin(self, replica: Replica) -> Rounds:
        """Restart with new random factors, the same on both ends of each edge."""
        yield from ()
        return StepResult(self.init(replica)._replace(steps=1))


def _started(edge: Peers, units: Iterable[Unit], replica: Replica) -> dict[str, State]:
    """The initial state of an edge, sampled with one seed per edge, the same on both ends."""
    (low, _), (high, _) = edge.weights
    pair = low * replica.size + high
    return {
        unit.key: unit.reducer.init(unit.gathered(replica.parameters), unit.seed + 1 + pair * 1_000_000)
        for unit in units
    }


def _work(unit: Unit, replica: Replica) -> Tensor:
    """A copy of a unit's parameters to work on; the model changes only after all edges."""
    x = unit.gathered(replica.parameters)
    return x.to(working(x.dtype), copy=True).contiguous()


class EdgeDifference(NamedTuple):
    """An estimate of the higher rank's tensor minus the lower rank's."""

    estimate: Tensor | Lazy

    def add_to(self, x: Tensor, weight: float) -> None:
        if isinstance(self.estimate, Lazy):
            self.estimate.add_to(x, weight)
        else:
            x.add_(self.estimate.to(x.dtype) * weight)


def _difference(
    unit: Unit, x: Tensor, replica: Replica, state: State
) -> Generator[Message, Reply[Tensor], tuple[State, EdgeDifference | NonFinite]]:
    """Run one iteration for a unit on an edge; returns its next state and the estimated difference."""
    reducer = unit.reducer
    single = replace(reducer, iterations=1) if isinstance(reducer, PowerIteration) else reducer
    done = yield from watched(single.reduce(x, state), unit.key)
    if not (done.sent_finite and done.received_finite):
        here = () if done.sent_finite else not_finite(unit.names, replica.parameters)
        return state, NonFinite(unit.names, here, "parameters")
    return done.state, EdgeDifference(done.reply.reduced)
