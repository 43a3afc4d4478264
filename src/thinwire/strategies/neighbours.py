"""What strategies share in which every replica takes steps of its own, and parameters are talked about."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from ..core import Replica, State, Strategy, Talk
from ..outcome import Lost
from ..topologies import Graph, Topology, edges_left
from .layer import Layer
from .units import Unit, layers_of

Own = TypeVar("Own", bound="Neighbours")


class Neighbours(Strategy):
    """Gradients and optimizers stay each rank's own; replicas differ, and are kept together by what neighbours say."""

    topology: Topology

    @property
    @abstractmethod
    def lossless(self) -> bool:
        """Whether parameters are said as they are."""

    @abstractmethod
    def graph(self, size: int) -> Graph:
        """Who speaks with whom; ValueError if that does not go with the strategy."""

    @abstractmethod
    def units(self, replica: Replica) -> tuple[Unit, ...]:
        """What to talk about, in an order that depends on the model alone."""

    @abstractmethod
    def rejoin(self, replica: Replica) -> Talk:
        """Begin anew with replicas that differ, after some ranks were lost. Returns an Outcome."""

    def weight_of(self, state: State) -> float:
        """How much a replica counts in the mean of all."""
        return 1.0

    def unsaid(self, replica: Replica, state: State) -> Mapping[str, float | None]:
        """The norm of what each unit has not said yet."""
        return {}

    def among(self: Own, survivors: tuple[int, ...], size: int) -> Own:
        """The same for those who are left of so many ranks."""
        return replace(self, topology=edges_left(self.topology, survivors, size))  # type: ignore[type-var]  # a dataclass

    def layers(self, replica: Replica, state: State, dense_bytes: int, said: Mapping[str, int]) -> dict[str, Layer]:
        """What came of each unit so far, by its key; the bytes are a meter's."""
        return layers_of(replica, self.units(replica), self.unsaid(replica, state), dense_bytes, said)


class Overlapping(Neighbours):
    """Messages may travel while replicas compute."""

    overlap: int  # steps that what was launched may take; 0: nothing is launched, all is said around an update

    @abstractmethod
    def launch(self, replica: Replica, state: State) -> tuple[State, Talk]:
        """Begin a talk that goes on while replicas compute."""

    @abstractmethod
    def land(self, replica: Replica, state: State, arrived: Any) -> tuple[State, tuple[Lost, ...]]:
        """Make use of what came of that talk."""


def overlap_of(strategy: Strategy) -> int:
    """How many steps messages may travel; 0 if they are waited for."""
    return strategy.overlap if isinstance(strategy, Overlapping) else 0


@lru_cache(maxsize=64)
def graph_of(topology: Topology, size: int) -> Graph:
    return topology.of(size)


def check_topology(name: str, topology: Topology) -> None:
    if not isinstance(topology, Topology):
        raise ValueError(f"{name} takes a topology, such as Ring(), not {topology!r}")


def check_rate(name: str, rate: float) -> None:
    if not (isinstance(rate, int | float) and 0 < rate <= 2):
        raise ValueError(f"{name} takes a rate above 0 and up to 2, not {rate!r}")
