"""What strategies share in which every replica takes steps of its own, and parameters are talked about."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ..core import Replica, Rounds, State, Strategy
from ..core.outcome import Learning, NonFinite
from ..topologies import Groups
from .layer_report import Layer
from .units import Unit, layers_of, learning_of


class Independent(Strategy):
    """Optimizers stay each rank's own; replicas differ, and what is said of their parameters keeps them together."""

    needs_loss: ClassVar[bool] = False  # of each step, from `handle.report_loss(...)`

    @abstractmethod
    def units(self, replica: Replica) -> tuple[Unit, ...]:
        """What to talk about, in an order that depends on the model alone."""

    @property
    def saves(self) -> bool:
        """Whether it is meant to put fewer bytes on a node's link than a plain all-reduce would."""
        return True

    @property
    def period(self) -> int:
        """Steps after which all has been said once."""
        return 1

    @property
    def warm_up(self) -> int:
        """Steps at the beginning in which it is something else."""
        return 0

    def will_communicate(self, step: int) -> bool:
        """Whether anything may be said around the update with this number, of which the first has 1."""
        return True

    def own_gradients(self, state: State) -> bool:
        """Whether the gradients of the next update stay each rank's own."""
        return True

    def groups_of(self, size: int, hosts: tuple[str, ...] = ()) -> Groups:
        """The groups that ranks are in, if there are several kinds of company."""
        return ()

    def effective(self, replica: Replica) -> Mapping[str, Tensor]:
        """The parameters that tell what the model computes."""
        return replica.parameters

    def weight_of(self, state: State) -> float:
        """How much a replica counts in the mean of all."""
        return 1.0

    def remembered(self, state: State) -> Mapping[str, State]:
        """What reducers remember of each unit, by its key; of none, where there are no reducers."""
        return {}

    def layers(self, replica: Replica, state: State, dense_bytes: int, said: Mapping[str, int]) -> dict[str, Layer]:
        """What came of each unit so far, by its key; the bytes are a meter's."""
        return layers_of(replica, self.units(replica), self.remembered(state), dense_bytes, said)

    def learning(self, replica: Replica, state: State) -> dict[str, Learning]:
        """How well each unit has learned to say less, of those that learn."""
        return learning_of(self.units(replica), self.remembered(state))


class Overlapping(Independent):
    """Messages may travel while replicas compute."""

    @abstractmethod
    def quiet(self, step: int) -> bool:
        """Whether nothing is said around the update that follows so many: the queue may be busy with what travels."""

    @abstractmethod
    def launches(self, step: int) -> bool:
        """Whether a talk begins after so many updates, once what was on its way has landed if it is to."""

    @abstractmethod
    def lands(self, step: int) -> bool:
        """Whether what is on its way has to be there after so many updates."""

    @abstractmethod
    def launch(self, replica: Replica, state: State) -> tuple[State, Rounds]:
        """Begin a talk that goes on while replicas compute."""

    @abstractmethod
    def in_flight(self, state: State) -> Any:
        """The form of what a talk in flight returns, as `states.restored` takes it; None where any value fits."""

    @abstractmethod
    def land(self, replica: Replica, state: State, arrived: Any) -> tuple[State, tuple[NonFinite, ...]]:
        """Make use of what came of that talk."""
