import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Message, Parameter, Reducer
from ..core.described import parts_of
from ..core.lazy import DeferredDifference, residual_after
from ..core.precision import working
from ..core.states import Spare
from .average import Average, as_reducer
from .contraction import contracting
from .server import Server
from .sharded import Sharded
from .wrapping import Wrapping


class ErrorFeedbackState(NamedTuple):
    residual: DeferredDifference  # the sum (gradient plus residual) minus what was sent; computed in the next step
    inner: Any  # the state of the reducer that sends the sum
    spare: Spare  # the buffer that the next sum is written into
    rate: float = 0.0  # by_rate: the learning rate at which the residual was last scaled; 0 if not known
    idle: bool = False  # by_rate: the learning rate is 0, so the next `reduce` sends zeros and keeps the residual


@dataclass(frozen=True, repr=False)
class ErrorFeedback(Wrapping):
    """Error feedback (EF-SGD): compresses the gradient plus the residual, the compression error of earlier steps.

    In each step, a rank adds its residual to its gradient and sends the sum, compressed by `inner`. The next residual
    is the sum minus what the other ranks decode from this rank's message.

    Examples:
        >>> import torch
        >>> from thinwire import ErrorFeedback, TopK
        >>> from thinwire.extend import all_ranks, lockstep, materialize
        >>> from thinwire.simulate import Simulated
        >>> reducer, gradient = ErrorFeedback(TopK(0.25)), torch.tensor([1.0, 3.0, 0.0, 2.0])
        >>> state = reducer.init(torch.zeros(4), seed=0)
        >>> for step in range(2):
        ...     exchange = lockstep([(all_ranks(1), reducer.reduce(gradient, state))])
        ...     [[(reply, state)]] = Simulated(1).run([exchange])
        ...     print(materialize(reply.reduced).tolist())
        [0.0, 3.0, 0.0, 0.0]
        [0.0, 0.0, 0.0, 4.0]
    """

    bounded: ClassVar[bool] = True

    inner: Codec | Reducer  # compresses the sum
    decay: float = 1.0  # factor on the residual per step; lower: old errors are forgotten sooner
    by_rate: bool = False  # as the learning rate changes, rescale the residual to keep learning rate * residual fixed
    force: bool = False  # accept a codec without a known error bound; its residual may grow without limit

    def __post_init__(self) -> None:
        inner = contracting("ErrorFeedback", self.inner, self.force)
        if self.by_rate and any(isinstance(part, Server | Sharded) for part in parts_of(inner)):
            raise ValueError(f"{self.inner!r} has a residual at a server, too, where by_rate=True is not supported")
        if not 0 < self.decay <= 1:
            raise ValueError(f"ErrorFeedback takes a decay above 0 and up to 1, not {self.decay!r}")

    @cached_property
    def compressor(self) -> Reducer:
        """The reducer that sends the sum; an unbiased codec is scaled to a contraction."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of force=True: __post_init__ has warned already
            return contracting("ErrorFeedback", self.inner, self.force)

    @property
    def message_codec(self) -> Codec | None:
        return self.compressor.message_codec

    def specialize(self, parameter: Parameter) -> Reducer:
        inner = as_reducer(self.inner).specialize(parameter)
        # A lossless reducer leaves no residual.
        return inner if inner.lossless else replace(self, inner=inner)

    def init(self, like: Tensor, seed: int) -> ErrorFeedbackState:
        residual = torch.zeros(like.shape, dtype=working(like.dtype), device=like.device)
        return ErrorFeedbackState(DeferredDifference(residual), self.compressor.init(residual, seed), Spare())

    def reduce(self, x: Tensor, state: ErrorFeedbackState) -> Conversation:
        inner, before = self.compressor, state.residual.total
        if state.idle:
            reply, next_inner = yield from inner.reduce(torch.zeros_like(before), state.inner)
            return reply, state._replace(inner=next_inner, idle=False)
        total = state.spare.like(before)
        if isinstance(inner, Average):
            picked = inner.codec.pick(x, state.residual, self.decay, total)  # adds and selects in one pass
            reply = yield Message(picked, inner.codec, state.inner, lazy=True)
            next_inner = inner.next_state(state.inner)
        else:
            state.residual.added_to(x, self.decay, total)
            reply, next_inner = yield from inner.reduce(total, state.inner)
        return reply, ErrorFeedbackState(residual_after(total, reply.sent), next_inner, Spare(before), state.rate)

    def at_rate(self, state: ErrorFeedbackState, rate: float) -> ErrorFeedbackState:
        """Rescale the residual to the new learning rate. At 0, keep it: the optimizer would apply nothing."""
        if not self.by_rate:
            return state
        if rate == 0:
            return state._replace(idle=True)
        if rate == state.rate:
            return state
        if state.rate:
            state = state._replace(residual=DeferredDifference(state.residual.dense() * (state.rate / rate)))
        return state._replace(rate=rate)

    def inner_states(self, state: ErrorFeedbackState) -> tuple[tuple[Reducer, Any], ...]:
        return ((self.compressor, state.inner),)

    def residual(self, state: ErrorFeedbackState) -> DeferredDifference:
        return state.residual
