from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Parameter, Reducer
from ..lazy import Rest, left_after
from ..outcome import Learning
from ..precision import working
from ..states import Spare
from .average import Average, as_reducer
from .server import loses_nothing


class FeedbackState(NamedTuple):
    residual: Rest
    inner: Any
    spare: Spare


@dataclass(frozen=True, repr=False)
class Feedback(Reducer):
    """Adds to each message what the earlier ones left unsaid."""

    inner: Codec | Reducer
    decay: float = 1.0  # of what is left unsaid, per step; lower: forgets sooner

    def __post_init__(self) -> None:
        as_reducer(self.inner)
        if not 0 < self.decay <= 1:
            raise ValueError(f"Feedback takes a decay above 0 and up to 1, not {self.decay!r}")

    @property
    def shaped(self) -> bool:
        return as_reducer(self.inner).shaped

    def suited(self, parameter: Parameter) -> Reducer:
        inner = as_reducer(self.inner).suited(parameter)
        # What is sent without loss leaves nothing unsaid to remember.
        return inner if loses_nothing(inner) else replace(self, inner=inner)

    def init(self, like: Tensor, seed: int) -> FeedbackState:
        residual = torch.zeros(like.shape, dtype=working(like.dtype), device=like.device)
        return FeedbackState(Rest(residual), as_reducer(self.inner).init(residual, seed), Spare())

    def reduce(self, x: Tensor, state: FeedbackState) -> Conversation:
        inner, before = as_reducer(self.inner), state.residual.total
        total = state.spare.like(before)
        if isinstance(inner, Average):  # one pass for adding and for picking what to say
            said = inner.codec.pick(x, state.residual, self.decay, total)
            reply, next_inner = yield from inner.converse(said, state.inner)
        else:
            state.residual.added_to(x, self.decay, total)
            reply, next_inner = yield from inner.reduce(total, state.inner)
        return reply, FeedbackState(left_after(total, reply.sent), next_inner, Spare(before))

    def joined(self, sizes: tuple[int, ...]) -> Reducer | None:
        inner = as_reducer(self.inner).joined(sizes)
        return None if inner is None else replace(self, inner=inner)

    def learning(self, state: FeedbackState) -> Learning | None:
        return as_reducer(self.inner).learning(state.inner)

    def unsaid(self, state: FeedbackState) -> Rest:
        return state.residual
