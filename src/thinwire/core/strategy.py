"""The interface of strategies: the exchange around every optimizer step, and properties for the runtime.

The defaults fit a strategy that keeps all replicas identical and waits for each exchange.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from .described import parts_of
from .factoring import Factoring
from .layer_report import Layer
from .messages import Rounds
from .outcome import Learning, NonFinite, StepResult
from .reducer import Composed, Reducer, State
from .replica import Parameter, Replica


class Strategy(Composed, ABC):
    """Decides what replicas exchange around every optimizer step."""

    needs_loss: ClassVar[bool] = False  # the loss of each step, from `handle.report_loss(...)`
    replicas_differ: ClassVar[bool] = False  # replicas differ between exchanges, by more than rounding
    has_center: ClassVar[bool] = False  # `center` gives a model that replicas are pulled to
    same_arithmetic: ClassVar[bool] = False  # every rank computes the same result, so all must round alike

    mean_of_all: ClassVar[bool] = False  # its reducers average over all ranks, so a parameter server may be used
    measured_per_step: ClassVar[bool] = True  # the bytes of a step follow from the parameters' shapes

    def settled(self) -> "Strategy":
        """The strategy after its own warm-up steps; its reducers' warm-ups stay."""
        return self

    # --- the exchange

    @abstractmethod
    def init(self, replica: Replica) -> State: ...

    def before_update(self, replica: Replica, state: State) -> Rounds:
        """Gradients are ready. Returns a StepResult."""
        yield from ()
        return StepResult(state)

    def after_update(self, replica: Replica, state: State) -> Rounds:
        """The optimizer has updated the parameters. Returns a StepResult."""
        yield from ()
        return StepResult(state)

    # --- before training

    def check(self, size: int, hosts: tuple[str, ...] = ()) -> None:
        """ValueError if it does not work with this number of ranks on these machines."""

    def diagnose(self, replica: Replica, parameters: Collection[Parameter]) -> list[str]:
        """Warnings for the user: settings without effect on this model."""
        reducers = [part for part in parts_of(self) if isinstance(part, Reducer)]
        return [warning for reducer in reducers for warning in reducer.diagnose(parameters)]

    def check_optimizer(self, optimizer: Any) -> list[str]:
        """Warnings for the user: settings of the optimizer that conflict with the method."""
        reducers = [part for part in parts_of(self) if isinstance(part, Reducer)]
        return [warning for reducer in reducers for warning in reducer.check_optimizer(optimizer)]

    def prepare(self, replica: Replica, model: Any, optimizer: Any) -> Replica:
        """The replica as the strategy trains it. A strategy that changes layers does it here."""
        return replica

    # --- properties

    @property
    def gradient_averaging(self) -> "GradientAveraging | None":
        """This strategy if all ranks step with one reduced gradient in every step, as in DDP; else None."""
        return None

    @property
    def overlapping(self) -> "Overlapping | None":
        """This strategy if messages may be in flight while replicas compute; else None."""
        return None

    @property
    def survivable(self) -> "Survivable | None":
        """This strategy if it can continue without failed ranks; else None."""
        return None

    @property
    def factoring(self) -> Factoring | None:
        """This strategy if it trains the model in low-rank factors; else None."""
        return self if isinstance(self, Factoring) else None

    @property
    def dedicated_servers(self) -> frozenset[int]:
        """Ranks that are only parameter servers and have no gradients."""
        return frozenset()

    @property
    def saves(self) -> bool:
        """Whether it should put fewer bytes on a node's link than a plain all-reduce."""
        return True

    @property
    def period(self) -> int:
        """Steps in which everything is exchanged once."""
        return 1

    @property
    def warm_up(self) -> int:
        """Initial steps with another exchange, such as dense averaging."""
        return 0

    def settles_after(self, replica: Replica) -> int:
        """Steps after which the traffic of a step no longer changes."""
        return 0

    def slack(self, replica: Replica) -> int:
        """Bytes by which a step may exceed a plain all-reduce without a warning."""
        return 0

    def will_communicate(self, step: int) -> bool:
        """Whether anything may be sent around the update with this number; the first has 1."""
        return True

    def local_gradients(self, state: State) -> bool:
        """Whether the next update uses local gradients, not reduced ones."""
        return False

    def groups_of(self, size: int, hosts: tuple[str, ...] = ()) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks; empty if there is only one."""
        return ()

    def dry_run(self) -> tuple["Strategy", int]:
        """A strategy with the same computation on as few ranks as possible, and the number of these ranks."""
        return self, 1

    # --- queries during training

    def effective(self, replica: Replica) -> Mapping[str, Tensor]:
        """The parameters as the model computes with them."""
        return replica.parameters

    def weight_of(self, state: State) -> float:
        """This replica's weight in the mean of all."""
        return 1.0

    def loss_of(self, state: State) -> float | None:
        """The loss by which a leader is chosen; None if there is no leader."""
        return None

    def center(self, replica: Replica, state: State) -> Mapping[str, Tensor] | None:
        """The center variable that replicas are pulled to; None if there is none."""
        return None

    def layers(self, replica: Replica, state: State, dense_bytes: int, payload: Mapping[str, int]) -> dict[str, Layer]:
        """A report per unit, by its key; `payload` has a meter's bytes."""
        return {}

    def learning(self, replica: Replica, state: State) -> dict[str, Learning]:
        """The state of each learned code, by its unit's key."""
        return {}


class GradientAveraging(Strategy):
    """All ranks step with one reduced gradient: DDP buckets can be exchanged as they become ready."""

    @property
    def gradient_averaging(self) -> "GradientAveraging":
        return self

    @abstractmethod
    def init(self, replica: Replica, units: Collection[Any] | None = None) -> State:
        """The state of these units; by default of all."""

    @abstractmethod
    def units(self, replica: Replica) -> tuple[Any, ...]:
        """What is reduced together, in an order that depends on the model alone."""

    @abstractmethod
    def exchange(
        self,
        units: Collection[Any],
        gradients: Mapping[str, Tensor],
        size: int,
        state: State,
        lr: float | None = None,
    ) -> Rounds:
        """Reduce the gradients of these units in place. Returns a StepResult, with the state of all units."""


class Overlapping(Strategy):
    """Messages may be in flight while replicas compute."""

    @property
    def overlapping(self) -> "Overlapping":
        return self

    @abstractmethod
    def quiet(self, step: int) -> bool:
        """Whether the update after this number of updates sends nothing, as an exchange may be in flight."""

    @abstractmethod
    def launches(self, step: int) -> bool:
        """Whether an exchange starts after this number of updates, once the one in flight has landed if due."""

    @abstractmethod
    def lands(self, step: int) -> bool:
        """Whether the exchange in flight must be complete after this number of updates."""

    @abstractmethod
    def launch(self, replica: Replica, state: State) -> tuple[State, Rounds]:
        """Start an exchange that continues while replicas compute. Returns the next state and its rounds."""

    @abstractmethod
    def in_flight(self, state: State) -> Any:
        """A value like the result of an exchange in flight, for `states.restored`; None where any value fits."""

    @abstractmethod
    def land(self, replica: Replica, state: State, arrived: Any) -> tuple[State, tuple[NonFinite, ...]]:
        """Apply the result of that exchange. Returns the next state and the dropped messages."""


class Survivable(Strategy):
    """Continues without ranks that failed."""

    @property
    def survivable(self) -> "Survivable":
        return self

    @abstractmethod
    def without_failed(self, survivors: tuple[int, ...], size: int) -> "Survivable":
        """The same strategy for the survivors of `size` ranks; ValueError if they cannot continue."""

    @abstractmethod
    def rejoin(self, replica: Replica) -> Rounds:
        """Restart the exchange from replicas that differ. Returns a StepResult."""
