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
    edges: dict[str, dict[str, State]]  # by edge, then by unit: the same on both of its ends


@dataclass(frozen=True, repr=False)
class EdgeGossip(Decentralized):
    """Each replica takes a step of its own, and finds out with each neighbor what their models differ in.

    With `PowerIteration`, this is PowerGossip. Over each edge both ends keep the same thin factors of the difference of
    their two models, and improve one of them with every message. Further iterations in a step work on what the ones
    before left over. Vectors, and matrices for which factors do not pay, are said as they are.
    """

    reducer: Codec | Reducer
    topology: Topology = Ring()
    rate: float = 1.0  # of the way to the neighbors; there is no need to tune it
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
                f"an edge of EdgeGossip is a conversation that goes on, and {self.topology!r} has ways that lead in "
                "one direction or change: take Ring(), Torus(), ..."
            )
        return graph

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

    def init(self, replica: Replica) -> EdgeState:
        graph, units = self.graph(replica.size), self.units(replica)
        return EdgeState(0, {edge.topic: _started(edge, units, replica) for edge in graph.edges_of(replica.rank)})

    def before_update(self, replica: Replica, state: EdgeState) -> Rounds:
        if state.steps == 0:  # replicas begin alike
            return StepResult(state._replace(steps=1))
        edges, units = self.graph(replica.size).edges_of(replica.rank), self.units(replica)
        states = {topic: dict(of_units) for topic, of_units in state.edges.items()}
        work = {unit.key: _work(unit, replica) for unit in units}
        lost: list[NonFinite] = []
        for iteration in range(self.iterations):
            said = [unit for unit in units if not (iteration and unit.reducer == Average())]
            talked = [(unit, edge) for unit in said for edge in edges]
            talks = [(e, _difference(u, work[u.key], replica, states[e.topic][u.key])) for u, e in talked]
            for (unit, edge), (new, found) in zip(talked, (yield from lockstep(talks)), strict=True):
                states[edge.topic][unit.key] = new
                if isinstance(found, NonFinite):
                    lost.append(found)
                else:
                    found.add_to(work[unit.key], self._weight(replica, edge))
        if lost:
            return StepResult(state, tuple(lost))
        for unit in units:
            unit.write(work[unit.key], replica.parameters)
        return StepResult(EdgeState(state.steps + 1, states))

    def _weight(self, replica: Replica, edge: Peers) -> float:
        """Of what the higher rank has more than the lower: the lower one adds it, the higher one takes it away."""
        (low, _), (high, _) = edge.weights
        weight = self.rate * self.graph(replica.size).weight(low, high)
        return weight if replica.rank == low else -weight

    def rejoin(self, replica: Replica) -> Rounds:
        """Factors are found anew, from the same start on both ends of each edge."""
        yield from ()
        return StepResult(self.init(replica)._replace(steps=1))


def _started(edge: Peers, units: Iterable[Unit], replica: Replica) -> dict[str, State]:
    """What both ends of an edge begin with: drawn from a seed that they share, and others do not."""
    (low, _), (high, _) = edge.weights
    pair = low * replica.size + high
    return {
        unit.key: unit.reducer.init(unit.gathered(replica.parameters), unit.seed + 1 + pair * 1_000_000)
        for unit in units
    }


def _work(unit: Unit, replica: Replica) -> Tensor:
    """A copy of a unit's parameters to work on: nobody sees what is not finished."""
    x = unit.gathered(replica.parameters)
    return x.to(working(x.dtype), copy=True).contiguous()


class Found(NamedTuple):
    """The higher rank's tensor minus the lower rank's, as far as it is known."""

    what: Tensor | Lazy

    def add_to(self, x: Tensor, weight: float) -> None:
        if isinstance(self.what, Lazy):
            self.what.add_to(x, weight)
        else:
            x.add_(self.what.to(x.dtype) * weight)


def _difference(
    unit: Unit, x: Tensor, replica: Replica, state: State
) -> Generator[Message, Reply[Tensor], tuple[State, Found | NonFinite]]:
    """One iteration over an edge."""
    reducer = unit.reducer
    once = replace(reducer, iterations=1) if isinstance(reducer, PowerIteration) else reducer
    done = yield from watched(once.reduce(x, state), unit.key)
    if not (done.said and done.heard):
        here = () if done.said else not_finite(unit.names, replica.parameters)
        return state, NonFinite(unit.names, here, "parameters")
    return done.state, Found(done.reply.reduced)
