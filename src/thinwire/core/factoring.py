"""What a strategy promises that trains a model in low-rank factors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from .messages import Rounds
from .replica import Replica


class Factoring(ABC):
    """The layers of the model are low-rank at times."""

    @abstractmethod
    def release(self, replica: Replica) -> Replica:
        """Undo `prepare`: the model has its own layers again."""

    @abstractmethod
    def factored(self, replica: Replica) -> Mapping[str, Any]:
        """The layers that are low-rank at times, by name, in their current form."""

    @abstractmethod
    def agreed(self, replica: Replica) -> Rounds:
        """Rounds that return full-rank weights which all groups agree on."""

    @abstractmethod
    def ranks_of_layers(self, replica: Replica, model: Any) -> dict[str, int]:
        """The rank of each layer of such a model, for a low-rank export."""
