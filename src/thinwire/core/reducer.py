"""What a reducer promises: how all peers' tensors become one, and what it keeps from step to step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, Self

from torch import Tensor

from .codec import Codec
from .described import Described, map_fields
from .lazy import DeferredDifference
from .messages import Conversation
from .replica import Parameter

State = Any  # tensors, numbers and tuples of them: what a checkpoint holds


class Composed(Described):
    """A description with codecs and reducers inside it."""

    def map_inner(self, change: Callable[[Any], Any]) -> Self:
        """The same with `change` applied to every codec and reducer that its tensors are sent through.

        By default these are the codecs and reducers in the fields of a dataclass.
        """
        return map_fields(self, Codec | Reducer, change)

    @property
    def inner_methods(self) -> "tuple[Codec | Reducer, ...]":
        """The codecs and reducers that its tensors are sent through."""
        found: list[Codec | Reducer] = []

        def note(part: Codec | Reducer) -> Codec | Reducer:
            found.append(part)
            return part

        self.map_inner(note)
        return tuple(found)


class Reducer(Composed, ABC):
    """Turns every peer's tensor into one agreed tensor."""

    same_arithmetic: ClassVar[bool] = False  # ranks compute the same result each, so their arithmetic must agree
    bounded: ClassVar[bool] = False  # its compression error is bounded by itself; if not, by the codecs inside it
    randomized: ClassVar[bool] = False  # its messages depend on the seed

    @property
    def lossless(self) -> bool:
        """Whether nothing of the tensor is lost, so that there is no residual."""
        return False

    @property
    def message_codec(self) -> "Codec | None":
        """The codec of its message, if one message through one codec is all that a rank sends."""
        return None

    @property
    def answer_varies(self) -> bool:
        """Whether the size of what comes back depends on how the tensors of the ranks differ."""
        return False

    def cycle(self, size: int) -> int:
        """Steps after which each of `size` ranks has had each role once."""
        return 1

    @property
    def needs_shape(self) -> bool:
        """Whether the tensor's shape matters; if not, small tensors may be flattened into one conversation."""
        return False

    def specialize(self, parameter: Parameter) -> "Reducer":
        """The reducer that this one becomes for a given parameter."""
        return self

    def fuse(self, sizes: tuple[int, ...]) -> "Reducer | None":
        """The reducer for tensors of these sizes, flattened into one conversation; None: large ones have their own."""
        return None

    @abstractmethod
    def init(self, like: Tensor, seed: int) -> State:
        """The state before the first step, for tensors of this shape and type. The seed is shared by all ranks."""

    @abstractmethod
    def reduce(self, x: Tensor, state: State) -> Conversation:
        """How often it yields may depend on shared state only, and the state it was given stays valid."""

    def at_rate(self, state: State, rate: float) -> State:
        """The state for gradients that a learning rate is multiplied with, if what it holds depends on that."""
        return state

    def inner_states(self, state: State) -> "tuple[tuple[Reducer, State], ...]":
        """The reducers inside it that have a state now, each with its state."""
        return ()

    def residual(self, state: State) -> Tensor | DeferredDifference | None:
        """What it was given and has not sent yet; None if it keeps no residual."""
        found = (inner.residual(its_state) for inner, its_state in self.inner_states(state))
        return next((residual for residual in found if residual is not None), None)

    @property
    def settles_after(self) -> int:
        """Steps after which it sends what it will stay with."""
        return 0

    def diagnose(self, parameters: Collection[Parameter]) -> list[str]:
        """Warnings for the user: settings without effect on a model with these parameters."""
        return []

    def check_optimizer(self, optimizer: Any) -> list[str]:
        """Warnings for the user: what the optimizer and this reducer both do."""
        return []


def states_of(reducer: Reducer, state: State) -> Iterator[tuple[Reducer, State]]:
    """A reducer and all reducers inside it, each with its state."""
    yield reducer, state
    for inner, its_state in reducer.inner_states(state):
        yield from states_of(inner, its_state)
