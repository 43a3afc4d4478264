import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Parameter, Reducer
from ..core.described import parts_of
from ..core.lazy import DeferredDifference, left_after
from ..core.outcome import Learning
from ..core.precision import working
from ..core.states import Spare
from .average import Average, as_reducer
from .contracting import contracting
from .server import Server, loses_nothing
from .sharded import Sharded


class ErrorFeedbackState(NamedTuple):
    residual: DeferredDifference
    inner: Any
    spare: Spare
    rate: float = 0.0  # of learning, that the residual is to be multiplied with; 0 if it was not told
    idle: bool = False  # the rate is 0 now: nothing that is said would be applied


@dataclass(frozen=True, repr=False)
class ErrorFeedback(Reducer):
    """Adds to each message what the earlier ones left unsaid."""

    inner: Codec | Reducer
    decay: float = 1.0  # of what is left unsaid, per step; lower: forgets sooner
    by_rate: bool = False  # what is unsaid is in units of parameters: it is not multiplied with a later learning rate
    force: bool = False  # take a codec that may lose more than it was given, all the same

    def __post_init__(self) -> None:
        inner = contracting("ErrorFeedback", self.inner, self.force)
        if self.by_rate and any(isinstance(part, Server | Sharded) for part in parts_of(inner)):
            raise ValueError(f"{self.inner!r} remembers at a server, too, which does not go by the learning rate")
        if not 0 < self.decay <= 1:
            raise ValueError(f"ErrorFeedback takes a decay above 0 and up to 1, not {self.decay!r}")

    @cached_property
    def said(self) -> Reducer:
        """What the sum is said by: what is unbiased, as a contraction."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it was said before
            return contracting("ErrorFeedback", self.inner, self.force)

    @property
    def needs_shape(self) -> bool:
        return as_reducer(self.inner).needs_shape

    def specialize(self, parameter: Parameter) -> Reducer:
        inner = as_reducer(self.inner).specialize(parameter)
        # What is sent without loss leaves nothing unsaid to remember.
        return inner if loses_nothing(inner) else replace(self, inner=inner)

    def init(self, like: Tensor, seed: int) -> ErrorFeedbackState:
        residual = torch.zeros(like.shape, dtype=working(like.dtype), device=like.device)
        return ErrorFeedbackState(DeferredDifference(residual), self.said.init(residual, seed), Spare())

    def reduce(self, x: Tensor, state: ErrorFeedbackState) -> Conversation:
        inner, before = self.said, state.residual.total
        if state.idle:
            reply, next_inner = yield from inner.reduce(torch.zeros_like(before), state.inner)
            return reply, state._replace(inner=next_inner, idle=False)
        total = state.spare.like(before)
        if isinstance(inner, Average):  # one pass for adding and for picking what to say
            said = inner.codec.pick(x, state.residual, self.decay, total)
            reply, next_inner = yield from inner.converse(said, state.inner)
        else:
            state.residual.added_to(x, self.decay, total)
            reply, next_inner = yield from inner.reduce(total, state.inner)
        return reply, ErrorFeedbackState(left_after(total, reply.sent), next_inner, Spare(before), state.rate)

    def at_rate(self, state: ErrorFeedbackState, rate: float) -> ErrorFeedbackState:
        """With the residual in units of the new rate; at a rate of 0 nothing is applied, so all waits."""
        if not self.by_rate:
            return state
        if rate == 0:
            return state._replace(idle=True)
        if rate == state.rate:
            return state
        if state.rate:
            state = state._replace(residual=DeferredDifference(state.residual.dense() * (state.rate / rate)))
        return state._replace(rate=rate)

    def fuse(self, sizes: tuple[int, ...]) -> Reducer | None:
        inner = as_reducer(self.inner).fuse(sizes)
        return None if inner is None else replace(self, inner=inner)

    def learning(self, state: ErrorFeedbackState) -> Learning | None:
        return as_reducer(self.inner).learning(state.inner)

    def residual(self, state: ErrorFeedbackState) -> DeferredDifference:
        return state.residual
