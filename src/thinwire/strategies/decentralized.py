"""What strategies share in which replicas speak with neighbors only."""

from abc import abstractmethod
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from ..core import Replica, Rounds
from ..topologies import Graph, Topology, edges_left
from .independent import Independent

Own = TypeVar("Own", bound="Decentralized")


class Decentralized(Independent):
    """Gradients and optimizers stay each rank's own; replicas differ, and are kept together by what neighbors say."""

    topology: Topology

    @property
    @abstractmethod
    def lossless(self) -> bool:
        """Whether parameters are said as they are."""

    @property
    def saves(self) -> bool:
        return not self.lossless

    @abstractmethod
    def graph(self, size: int) -> Graph:
        """Who speaks with whom; ValueError if that does not go with the strategy."""

    @abstractmethod
    def rejoin(self, replica: Replica) -> Rounds:
        """Begin anew with replicas that differ, after some ranks were lost. Returns an Outcome."""

    def check(self, size: int, hosts: tuple[str, ...] = ()) -> None:
        self.graph(size)

    def among(self: Own, survivors: tuple[int, ...], size: int) -> Own:
        """The same for those who are left of so many ranks."""
        return replace(self, topology=edges_left(self.topology, survivors, size))  # type: ignore[type-var]  # a dataclass


@lru_cache(maxsize=64)
def graph_of(topology: Topology, size: int) -> Graph:
    return topology.of(size)


def check_topology(name: str, topology: Topology) -> None:
    if not isinstance(topology, Topology):
        raise ValueError(f"{name} takes a topology, such as Ring(), not {topology!r}")


def check_rate(name: str, rate: float) -> None:
    if not (isinstance(rate, int | float) and 0 < rate <= 2):
        raise ValueError(f"{name} takes a rate above 0 and up to 2, not {rate!r}")
