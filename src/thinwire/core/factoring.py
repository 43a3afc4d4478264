"""The interface of strategies that train a model in low-rank factors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from .messages import Rounds
from .replica import Replica


class Factoring(ABC):
    """A strategy that trains layers as low-rank factors in some of its phases."""

    @abstractmethod
    def release(self, replica: Replica) -> Replica:
        """Undo `prepare`: the model has its own layers again."""

    @abstractmethod
    def factored(self, replica: Replica) -> Mapping[str, Any]:
        """The layers that it factors, by name, in their current form."""

    @abstractmethod
    def agreed(self, replica: Replica) -> Rounds:
        """Rounds that return the full-rank weights that all groups agree on."""

    @abstractmethod
    def ranks_of_layers(self, replica: Replica, model: Any) -> dict[str, int]:
        """The rank of each factored layer, for a low-rank export."""
