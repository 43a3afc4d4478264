from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import BinnedSign, Chain, SparseSign
from ..core import Codec, Conversation, Message, Parameter, Reducer
from ..core.lazy import residual_after
from ..core.precision import working
from ..core.states import Spare
from ..kernels.bins import add_and_select
from .average import STRIDE, Average

BINS = {"conv": 50, "dense": 500, "recurrent": 500, "embedding": 500, "attention": 500}  # the paper's, by kind of layer
FORMS = ("compact", "paper")
LEAST_BINS = 4  # tensors with fewer bins are sent dense


class AdaCompState(NamedTuple):
    residual: Tensor
    seed: int  # of the next message
    spare: Spare  # the buffer that the next residual is written into


@dataclass(frozen=True, repr=False)
class AdaComp(Reducer):
    """AdaComp (Chen et al., 2018): adaptive residual sparsification in bins.

    A layer is cut into bins of `bin_size` entries. In each step, a rank adds its residual to its gradient. Of each bin
    it selects the entries with |residual + factor * gradient| of at least the bin's largest |residual + gradient|. It
    sends their positions, their signs and one scale for the layer. The sum minus what was sent is the next residual.
    Small tensors, and by default layers of kinds for which the paper has no bin size, are sent dense.
    """

    bounded: ClassVar[bool] = True

    bin_size: int | None = None  # in entries; larger: fewer bytes. None: 50 for convolutions, 500 for other layers
    factor: float = 2.0  # on the gradient in the selection; lower: fewer bytes. 1: only the maximum of each bin
    form: str = "compact"  # the layout on the wire; "paper": byte-aligned, as the paper counts it
    coding: Codec | None = None  # entropy coding of the payload, such as Entropy()

    def __post_init__(self) -> None:
        if self.bin_size is not None and not (isinstance(self.bin_size, int) and self.bin_size > 0):
            raise ValueError(f"AdaComp takes bins of 1 entry or more, not {self.bin_size!r}")
        if not 1 <= self.factor < inf:
            raise ValueError(f"AdaComp takes a factor of 1 or more, not {self.factor!r}")
        if self.form not in FORMS:
            raise ValueError(f"AdaComp's form is one of {', '.join(map(repr, FORMS))}, not {self.form!r}")
        if self.coding is not None and not (isinstance(self.coding, Codec) and self.coding.takes_codes):
            raise ValueError(f"AdaComp's coding is a codec that takes codes, such as Entropy(), not {self.coding!r}")
        if self.form == "paper" and self.bin_size is not None:
            BinnedSign(self.bin_size)

    @property
    def needs_shape(self) -> bool:
        return True  # each layer has a scale of its own

    @property
    def codec(self) -> Codec:
        signs = SparseSign() if self.form == "compact" else BinnedSign(self.bin_size or BINS["dense"])
        return signs if self.coding is None else Chain(signs, self.coding)

    def specialize(self, parameter: Parameter) -> Reducer:
        bin_size = self.bin_size or BINS.get(parameter.kind)
        if bin_size is None or parameter.like.numel() < LEAST_BINS * bin_size:
            return Average()
        return replace(self, bin_size=bin_size)

    def init(self, like: Tensor, seed: int) -> AdaCompState:
        residual = torch.zeros(like.shape, dtype=working(like.dtype), device=like.device)
        return AdaCompState(residual, seed, Spare())

    def reduce(self, x: Tensor, state: AdaCompState) -> Conversation:
        total = state.spare.like(state.residual)
        selected = add_and_select(x, state.residual, total, self.bin_size or BINS["dense"], self.factor)
        reply = yield Message(selected, self.codec, state.seed, lazy=True)
        residual = residual_after(total, reply.sent).dense()
        return reply, AdaCompState(residual, state.seed + STRIDE, Spare(state.residual))

    def residual(self, state: AdaCompState) -> Tensor:
        return state.residual
