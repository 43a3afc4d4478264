import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Parameter, Reducer, Reply
from ..core.lazy import Lazy
from ..core.precision import working
from ..core.states import Spare
from .average import as_reducer
from .contraction import contracting
from .wrapping import Wrapping


class DifferenceState(NamedTuple):
    mine: Tensor  # the peers' estimate of this rank's tensor
    theirs: Tensor  # the weighted sum of the estimates of all ranks
    inner: Any
    spare: tuple[Spare, Spare, Spare]  # buffers for the next two estimates and for the difference


@dataclass(frozen=True, repr=False)
class Difference(Wrapping):
    """Compressed differences: under a mean this is EF21, with gossip it is CHOCO-SGD (Koloskova et al., 2019).

    Each step, a rank sends the compressed difference between its tensor and the peers' estimate of it. The result is
    the weighted sum of all estimates, which converges to that of the tensors as these settle.
    """

    bounded: ClassVar[bool] = True

    inner: Codec | Reducer
    force: bool = False  # accept a codec that is not known to be a contraction

    def __post_init__(self) -> None:
        contracting("Difference", self.inner, self.force)

    @cached_property
    def compressor(self) -> Reducer:
        """The reducer that sends the difference; an unbiased codec is scaled to a contraction."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # __post_init__ has warned already
            return contracting("Difference", self.inner, self.force)

    @property
    def message_codec(self) -> Codec | None:
        return self.compressor.message_codec

    def specialize(self, parameter: Parameter) -> Reducer:
        inner = as_reducer(self.inner).specialize(parameter)
        # A lossless reducer needs no estimates.
        return inner if inner.lossless else replace(self, inner=inner)

    def init(self, like: Tensor, seed: int) -> DifferenceState:
        """The state in which all estimates are zero."""
        return self.init_at(torch.zeros(like.shape, dtype=working(like.dtype), device=like.device), seed)

    def init_at(self, x: Tensor, seed: int) -> DifferenceState:
        """The state if all ranks have this tensor: the estimates equal it. The weights of the sum must add up to 1."""
        mine, theirs = (x.to(working(x.dtype), copy=True, memory_format=torch.contiguous_format) for _ in range(2))
        return DifferenceState(mine, theirs, self.compressor.init(mine, seed), (Spare(), Spare(), Spare()))

    def inner_states(self, state: DifferenceState) -> tuple[tuple[Reducer, Any], ...]:
        return ((self.compressor, state.inner),)

    def reduce(self, x: Tensor, state: DifferenceState) -> Conversation:
        inner, (mine, theirs, new) = self.compressor, state.spare
        difference = torch.sub(x, state.mine, out=new.like(state.mine))
        reply, next_inner = yield from inner.reduce(difference, state.inner)
        estimates = _sum(state.mine, reply.sent, mine), _sum(state.theirs, reply.reduced, theirs)
        spare = Spare(state.mine), Spare(state.theirs), new
        return Reply(estimates[1], estimates[0]), DifferenceState(*estimates, next_inner, spare)


def _sum(known: Tensor, new: Tensor | Lazy, spare: Spare) -> Tensor:
    if isinstance(new, Tensor):
        return torch.add(known, new.view(known.shape), out=spare.like(known))
    total = spare.like(known).copy_(known)
    new.add_to(total)
    return total
