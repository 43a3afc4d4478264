from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import inf, sqrt
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from ..codecs import Cast, Chain, TopK
from ..codecs.sparsifier import check_ratio
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply
from ..core.described import parts_of
from ..core.lazy import DeferredDifference, Lazy, materialize, residual_after, zero_where
from ..core.precision import working
from ..core.states import Spare
from .average import STRIDE, Average, as_reducer
from .contraction import contracting, shrunk
from .difference import Difference
from .ef21 import EF21
from .error_feedback import ErrorFeedback
from .wrapping import Wrapping

RAMP = (0.25, 0.0625, 0.015625, 0.004)  # the paper's ratios; those not above the final ratio are skipped


class DGCState(NamedTuple):
    step: int  # up to the end of the ramp
    seed: int
    velocity: Tensor
    unsent: Tensor  # the residual: the sum of velocities that were not sent
    inner: Any  # state of the inner reducer that sends them
    applied: Tensor | None  # the mean of the ranks' payloads in the last step; the same on all ranks
    spare_velocity: Spare
    spare_unsent: Spare


@dataclass(frozen=True, repr=False)
class DGC(Wrapping):
    """Deep Gradient Compression (Lin et al., 2018): top-k sparsification with momentum correction and error feedback.

    Each step, a rank updates its velocity (momentum of its gradients), adds it to the residual and sends the largest
    entries of the sum. The velocity and the residual are zeroed where entries were sent. Vectors (biases, norms) are
    sent dense.
    """

    bounded: ClassVar[bool] = True

    ratio: float = 0.001  # of all entries; lower: fewer bytes
    momentum: float = 0.9  # of the velocity; higher: earlier gradients weigh more
    outside: float | None = None  # the optimizer's momentum, which is canceled; None: same as momentum; 0: none
    clip: float | None = None  # norm that the mean gradient is clipped to; a rank's gradient: clip * sqrt(ranks)
    ramp_steps: int = 0  # over which the ratio falls to its final value; higher: more bytes at the start
    values: Codec = Cast("float16")  # codec of the selected values
    ranks: int | None = None  # number of ranks for the clip; None: the world size
    by: Codec | Reducer | None = None  # reducer of the sums, instead of ratio, ramp_steps and values

    def __post_init__(self) -> None:
        check_ratio("DGC", self.ratio)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"DGC takes a momentum of 0 or more and below 1, not {self.momentum!r}")
        if not 0 <= self.canceled_momentum < 1:
            raise ValueError(f"DGC takes an outside of 0 or more and below 1, not {self.outside!r}")
        if self.clip is not None and not 0 < self.clip < inf:
            raise ValueError(f"DGC clips to a norm above 0, not {self.clip!r}")
        if not (isinstance(self.ramp_steps, int) and self.ramp_steps >= 0):
            raise ValueError(f"DGC takes a ramp of 0 steps or more, not {self.ramp_steps!r}")
        if self.ramp_steps and not self._stages:
            raise ValueError(f"a ramp begins at a ratio of {RAMP[0]}, so it cannot end at {self.ratio!r}")
        if not isinstance(self.values, Codec):
            raise ValueError(f"DGC(values=...) takes a codec, not {self.values!r}")
        if self.ranks is not None and not (isinstance(self.ranks, int) and self.ranks > 0):
            raise ValueError(f"DGC(ranks=...) takes 1 rank or more, not {self.ranks!r}")
        if self.ranks is not None and self.clip is None:
            raise ValueError(f"DGC(ranks={self.ranks!r}) has no effect without a clip")
        for part in () if self.by is None else parts_of(as_reducer(self.by)):
            if isinstance(part, Difference | EF21 | ErrorFeedback | DGC):
                raise ValueError(
                    f"{part!r} keeps a residual, as DGC around it does: DGC(by=...) takes a reducer without one"
                )
        contracting("DGC", self.codec(self.ramp_steps) if self.by is None else self.by)
        fixed = [f for f in fields(self) if f.name in ("ratio", "ramp_steps", "values")]
        for f in fixed if self.by is not None else ():
            if getattr(self, f.name) != f.default:
                raise ValueError(f"{f.name}={getattr(self, f.name)!r} has no effect with by={self.by!r}")

    def map_inner(self, change: Callable[[Any], Any]) -> Self:
        return self if self.by is None else replace(self, by=change(self.by))

    @property
    def needs_shape(self) -> bool:
        return True  # magnitudes differ between layers, so each layer has its own top-k

    def specialize(self, parameter: Parameter) -> Reducer:
        by = None if self.by is None else as_reducer(self.by).specialize(parameter)
        if by is None and parameter.like.ndim < 2:
            return Average()
        if by is not None and by.lossless:
            return by
        return replace(self, by=by, ranks=None if self.clip is None else self.ranks or len(parameter.ranks))

    def codec(self, step: int) -> Codec:
        """The codec of a step; the stages of the ramp have equal lengths."""
        ratio = self.ratio
        if step < self.ramp_steps:
            ratio = self._stages[step * len(self._stages) // self.ramp_steps]
        return shrunk("DGC", Chain(TopK(ratio), self.values))

    @property
    def settles_after(self) -> int:
        return self.ramp_steps

    def check_optimizer(self, optimizer: Any) -> list[str]:
        groups, found = optimizer.param_groups, []
        if self.canceled_momentum and any(group.get("dampening") or group.get("nesterov") for group in groups):
            found.append(f"{self!r} needs an optimizer without dampening and without nesterov")
        for momentum in {group.get("momentum", 0.0) for group in groups} - {self.canceled_momentum}:
            found.append(
                f"{self!r} cancels a momentum of {self.canceled_momentum:g} in the optimizer, but "
                f"{type(optimizer).__name__} has {momentum:g}: use DGC(..., outside={momentum:g})"
            )
        return found

    def init(self, like: Tensor, seed: int) -> DGCState:
        velocity = torch.zeros(like.shape, dtype=working(like.dtype), device=like.device)
        inner = None if self.by is None else contracting("DGC", self.by).init(velocity, seed)
        applied = torch.zeros_like(velocity) if self.canceled_momentum else None
        return DGCState(0, seed, velocity, torch.zeros_like(velocity), inner, applied, Spare(), Spare())

    def reduce(self, x: Tensor, state: DGCState) -> Conversation:
        velocity, unsent = state.spare_velocity.like(state.velocity), state.spare_unsent.like(state.unsent)
        torch.mul(state.velocity, self.momentum, out=velocity).add_(x if self.clip is None else self._clipped(x))
        reply: Reply[Tensor | Lazy]
        if self.by is None:
            codec, inner = self.codec(state.step), None
            picked = codec.pick(velocity, DeferredDifference(state.unsent), 1.0, unsent)
            reply = yield Message(picked, codec, state.seed, lazy=True)
        else:
            torch.add(velocity, state.unsent, out=unsent)
            reply, inner = yield from contracting("DGC", self.by).reduce(unsent, state.inner)
        zero_where(velocity, reply.sent)
        residual = residual_after(unsent, reply.sent).dense()
        reduced, applied = reply.reduced, state.applied
        if applied is not None:  # cancels the optimizer's momentum: its update becomes `applied`
            reduced, applied = torch.mul(applied, -self.canceled_momentum), materialize(reduced)
            reduced.add_(applied)
        return Reply(reduced, reply.sent), DGCState(
            min(state.step + 1, self.ramp_steps),
            state.seed + STRIDE,
            velocity,
            residual,
            inner,
            applied,
            Spare(state.velocity),
            Spare(state.unsent),
        )

    @property
    def canceled_momentum(self) -> float:
        """The optimizer's momentum, which DGC cancels."""
        return self.momentum if self.outside is None else self.outside

    @property
    def _stages(self) -> tuple[float, ...]:
        return tuple(ratio for ratio in RAMP if ratio > self.ratio)

    def fuse(self, sizes: tuple[int, ...]) -> Reducer | None:
        by = None if self.by is None else as_reducer(self.by).fuse(sizes)
        return None if by is None else replace(self, by=by)

    def inner_states(self, state: DGCState) -> tuple[tuple[Reducer, Any], ...]:
        return () if self.by is None else ((as_reducer(self.by), state.inner),)

    def residual(self, state: DGCState) -> Tensor:
        return state.unsent

    def _clipped(self, x: Tensor) -> Tensor:
        assert self.clip is not None
        norm = torch.linalg.vector_norm(x, dtype=torch.float64)  # a long sum in 32 bits has an error of percents
        # With independent gradients, the mean of n ranks has a norm sqrt(n) times smaller than each of them.
        factor: Tensor = self.clip * sqrt(self.ranks or 1) / norm
        return x.to(working(x.dtype)) * factor.clamp(max=1)
