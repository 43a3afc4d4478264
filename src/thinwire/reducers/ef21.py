from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Parameter, Reducer
from ..core.precision import working
from ..core.states import Spare
from .average import as_reducer
from .contraction import contracting
from .difference import Difference, DifferenceState
from .wrapping import Wrapping


class EF21State(NamedTuple):
    smooth: Tensor | None  # running mean of the gradients; None without momentum
    known: DifferenceState
    spare: Spare


@dataclass(frozen=True, repr=False)
class EF21(Wrapping):
    """EF21 (Richtarik et al., 2021): error feedback that compresses the change of the gradient.

    Each step, a rank sends the compressed difference between its gradient and the peers' estimate of it, which then
    moves by that difference. With momentum it is EF21-SGDM (Fatkhullin et al., 2023): the running mean of stochastic
    gradients takes the place of the gradient.
    """

    bounded: ClassVar[bool] = True

    inner: Codec | Reducer
    momentum: float = 0.0  # of the running mean; higher: less noise, more delay; 0: no running mean
    force: bool = False  # accept a codec that is not known to be a contraction

    def __post_init__(self) -> None:
        contracting("EF21", self.inner, self.force)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"EF21 takes a momentum from 0 to below 1, not {self.momentum!r}")

    @cached_property
    def difference(self) -> Difference:
        return Difference(self.inner, self.force)

    @property
    def message_codec(self) -> Codec | None:
        return None if self.momentum else self.difference.message_codec

    def specialize(self, parameter: Parameter) -> Reducer:
        inner = as_reducer(self.inner).specialize(parameter)
        # A lossless reducer needs no estimates.
        return inner if inner.lossless and not self.momentum else replace(self, inner=inner)

    def init(self, like: Tensor, seed: int) -> EF21State:
        known = self.difference.init(like, seed)
        smooth = torch.zeros(like.shape, dtype=working(like.dtype), device=like.device) if self.momentum else None
        return EF21State(smooth, known, Spare())

    def inner_states(self, state: EF21State) -> tuple[tuple[Reducer, Any], ...]:
        return ((self.difference, state.known),)

    def reduce(self, x: Tensor, state: EF21State) -> Conversation:
        smooth, spare = state.smooth, state.spare
        if smooth is not None:
            x = torch.mul(smooth, self.momentum, out=spare.like(smooth)).add_(x, alpha=1 - self.momentum)
            smooth, spare = x, Spare(smooth)
        reply, known = yield from self.difference.reduce(x, state.known)
        return reply, EF21State(smooth, known, spare)
