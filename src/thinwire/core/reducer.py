"""The interface of reducers: all peers' tensors to one agreed tensor, with explicit state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, Self

from torch import Tensor

from .codec import Codec
from .described import Described, map_fields
from .lazy import DeferredDifference
from .messages import Conversation
from .replica import Parameter

State = Any  # tensors, numbers and tuples of them, as checkpoints save them


class Composed(Described):
    """A described object with codecs and reducers inside it."""

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

    same_arithmetic: ClassVar[bool] = False  # every rank computes the same result, so all must round alike
    bounded: ClassVar[bool] = False  # True: the reducer bounds its error; False: its codecs must
    randomized: ClassVar[bool] = False  # its messages depend on the seed

    @property
    def lossless(self) -> bool:
        """Whether tensors are reduced without compression error, so that there is no residual."""
        return False

    @property
    def message_codec(self) -> "Codec | None":
        """The codec of its message, if a rank sends one message per step; else None."""
        return None

    @property
    def answer_varies(self) -> bool:
        """Whether the size of the answer depends on how the tensors of the ranks differ."""
        return False

    def cycle(self, size: int) -> int:
        """Steps after which each of `size` ranks has had each role once."""
        return 1

    @property
    def period(self) -> int:
        """Steps after which the sizes of its messages repeat, where they do not depend on the values."""
        return 1

    @property
    def needs_shape(self) -> bool:
        """Whether it needs the tensor's own shape; if not, small tensors may be flattened into one conversation."""
        return False

    def specialize(self, parameter: Parameter) -> "Reducer":
        """The reducer that this one becomes for a given parameter."""
        return self

    def fuse(self, sizes: tuple[int, ...]) -> "Reducer | None":
        """The reducer for all tensors of these sizes in one conversation; None if only small tensors may share one."""
        return None

    @abstractmethod
    def init(self, like: Tensor, seed: int) -> State:
        """The state before the first step, for tensors of this shape and type. The seed is shared by all ranks."""

    @abstractmethod
    def reduce(self, x: Tensor, state: State) -> Conversation:
        """The number of yields may depend on shared state only. The given state must stay valid."""

    def at_rate(self, state: State, rate: float) -> State:
        """The state for a new learning rate, if it contains values in units of the learning rate."""
        return state

    def inner_states(self, state: State) -> "tuple[tuple[Reducer, State], ...]":
        """The reducers inside it that have a state now, each with its state."""
        return ()

    def residual(self, state: State) -> Tensor | DeferredDifference | None:
        """What compression has left out so far and a later step will add; None if it keeps no residual."""
        found = (inner.residual(its_state) for inner, its_state in self.inner_states(state))
        return next((residual for residual in found if residual is not None), None)

    @property
    def settles_after(self) -> int:
        """Steps after which its traffic no longer changes: the length of its warm-up."""
        return 0

    def diagnose(self, parameters: Collection[Parameter]) -> list[str]:
        """Warnings for the user: settings without effect on a model with these parameters."""
        return []

    def check_optimizer(self, optimizer: Any) -> list[str]:
        """Warnings for the user: settings of the optimizer that conflict with this reducer."""
        return []


def states_of(reducer: Reducer, state: State) -> Iterator[tuple[Reducer, State]]:
    """A reducer and all reducers inside it, each with its state."""
    yield reducer, state
    for inner, its_state in reducer.inner_states(state):
        yield from states_of(inner, its_state)
