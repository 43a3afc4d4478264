"""The base of decentralized strategies: ranks exchange parameters with their neighbors only."""

from abc import abstractmethod
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from ..core import Strategy, Survivable
from ..topologies import Complete, Graph, Topology, surviving_topology
from .independent import Independent

Own = TypeVar("Own", bound="Decentralized")


class Decentralized(Independent, Survivable):
    """Gradients and optimizers stay local; replicas differ, and exchanges with neighbors keep them close."""

    topology: Topology

    @property
    @abstractmethod
    def lossless(self) -> bool:
        """Whether parameters are sent uncompressed."""

    @property
    def saves(self) -> bool:
        return not self.lossless

    @abstractmethod
    def graph(self, size: int) -> Graph:
        """The communication graph; ValueError if the strategy does not work on it."""

    def check(self, size: int, hosts: tuple[str, ...] = ()) -> None:
        self.graph(size)

    def dry_run(self) -> tuple[Strategy, int]:
        """On two ranks, fully connected: the topology itself may need more ranks."""
        return replace(self, topology=Complete()), 2  # type: ignore[type-var]  # a dataclass

    def without_failed(self: Own, survivors: tuple[int, ...], size: int) -> Own:
        remaining: Own = replace(self, topology=surviving_topology(self.topology, survivors, size))  # type: ignore[type-var]  # a dataclass
        remaining.graph(len(survivors))
        return remaining


@lru_cache(maxsize=64)
def graph_of(topology: Topology, size: int) -> Graph:
    return topology.of(size)


def check_topology(name: str, topology: Topology) -> None:
    if not isinstance(topology, Topology):
        raise ValueError(f"{name} takes a topology, such as Ring(), not {topology!r}")


def check_rate(name: str, rate: float) -> None:
    if not (isinstance(rate, int | float) and 0 < rate <= 2):
        raise ValueError(f"{name} takes a rate above 0 and up to 2, not {rate!r}")
