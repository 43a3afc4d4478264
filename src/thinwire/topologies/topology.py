from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..core.described import Described
from .graph import Graph


class Topology(Described, ABC):
    """A kind of graph, for any number of ranks that it can be made of."""

    @abstractmethod
    def of(self, size: int) -> Graph:
        """The graph of so many ranks; ValueError if there is none."""

    def among(self, survivors: Sequence[int], size: int) -> "Topology":
        """The kind of graph that those go on with who are left of so many, numbered anew from 0."""
        return self
