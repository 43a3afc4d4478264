from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..core.described import Described
from .graph import Graph


class Topology(Described, ABC):
    """A kind of graph, for any world size that it supports."""

    @abstractmethod
    def of(self, size: int) -> Graph:
        """The graph of `size` ranks; raises ValueError if there is none."""

    def for_survivors(self, survivors: Sequence[int], size: int) -> "Topology":
        """The topology for the survivors of `size` ranks, renumbered from 0."""
        return self
