from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor

from ..core import Codec, Conversation, Parameter, Reducer
from .average import Average, as_reducer
from .wrapping import Wrapping


class WarmUpState(NamedTuple):
    step: int
    first: Any
    then: Any


@dataclass(frozen=True, repr=False)
class WarmUp(Wrapping):
    """Warm-up: a dense average (or `first`) for the first steps, then `then`.

    Early gradients change too fast for a residual to be of use.

    Examples:
        >>> from thinwire import PowerSGD, WarmUp, settled
        >>> settled(WarmUp(1000, PowerSGD(4)))  # after 1,000 dense steps
        PowerSGD(4)
    """

    steps: int
    then: Codec | Reducer
    first: Codec | Reducer = Average()  # the reducer of the warm-up steps

    def __post_init__(self) -> None:
        as_reducer(self.then), as_reducer(self.first)
        if not (isinstance(self.steps, int) and self.steps >= 0):
            raise ValueError(f"WarmUp takes 0 steps or more, not {self.steps!r}")

    def specialize(self, parameter: Parameter) -> Reducer:
        first, then = as_reducer(self.first).specialize(parameter), as_reducer(self.then).specialize(parameter)
        return first if first == then else replace(self, first=first, then=then)

    @property
    def settles_after(self) -> int:
        return self.steps

    def init(self, like: Tensor, seed: int) -> WarmUpState:
        return WarmUpState(0, as_reducer(self.first).init(like, seed), as_reducer(self.then).init(like, seed))

    def reduce(self, x: Tensor, state: WarmUpState) -> Conversation:
        if state.step < self.steps:
            reply, first = yield from as_reducer(self.first).reduce(x, state.first)
            return reply, state._replace(step=state.step + 1, first=first)
        reply, then = yield from as_reducer(self.then).reduce(x, state.then)
        return reply, state._replace(then=then)

    def inner_states(self, state: WarmUpState) -> tuple[tuple[Reducer, Any], ...]:
        if state.step < self.steps:
            return ((as_reducer(self.first), state.first),)
        return ((as_reducer(self.then), state.then),)

    def at_rate(self, state: WarmUpState, rate: float) -> WarmUpState:
        first, then = as_reducer(self.first), as_reducer(self.then)
        return state._replace(first=first.at_rate(state.first, rate), then=then.at_rate(state.then, rate))
