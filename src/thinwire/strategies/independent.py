"""The base of strategies in which replicas differ and exchange parameters."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from ..core import Replica, State, Strategy
from ..core.layer_report import Layer
from ..core.outcome import Learning
from .units import Unit, layers_of, learned_codes


class Independent(Strategy):
    """Every rank has its own optimizer and takes local steps; exchanging parameters keeps replicas close."""

    replicas_differ: ClassVar[bool] = True

    @abstractmethod
    def units(self, replica: Replica) -> tuple[Unit, ...]:
        """What is exchanged together, in an order that depends on the model alone."""

    def local_gradients(self, state: State) -> bool:
        return True

    def unit_states(self, state: State) -> Mapping[str, State]:
        """The reducers' states by their units' keys; empty where there are no reducers."""
        return {}

    def layers(self, replica: Replica, state: State, dense_bytes: int, payload: Mapping[str, int]) -> dict[str, Layer]:
        return layers_of(replica, self.units(replica), self.unit_states(state), dense_bytes, payload)

    def learning(self, replica: Replica, state: State) -> dict[str, Learning]:
        return learned_codes(self.units(replica), self.unit_states(state))
