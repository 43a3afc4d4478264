from dataclasses import dataclass
from math import isfinite, ldexp, log2
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..codecs import Chain, Entropy, Identity, MiniFloat
from ..codecs.mini_float import fitted_scale
from ..core import Codec, Conversation, Message, Reducer, Reply
from ..core.precision import working
from ..entropy import GenNorm
from .average import STRIDE

QUARTERS = (1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429)  # 2 to the power of 0, 1/4, 1/2, 3/4


class FittedFloatState(NamedTuple):
    step: int  # since all ranks agreed on a scale
    scale: float  # the same on all ranks
    seed: int


@dataclass(frozen=True, repr=False)
class FittedFloat(Reducer):
    """Low-precision floats (8 or 4 bits) with a scale fitted to the distribution of the gradient's entries.

    Each step, a rank sends its scaled entries, rounded to `form`. Every `refit` steps, each rank fits a generalized
    normal distribution to its entries, and the geometric mean of the ranks' best scales becomes the common scale.
    """

    bounded: ClassVar[bool] = True

    form: str = "fp4-121"  # see MiniFloat
    refit: int = 100  # steps between fits, at most; at the start 1, 1, 2, 4, 8, ...
    coding: Codec | None = Entropy(GenNorm(grid="fp4-121"))  # entropy coding of the codes; None: none

    def __post_init__(self) -> None:
        MiniFloat(self.form)
        if not (isinstance(self.refit, int) and self.refit > 0):
            raise ValueError(f"FittedFloat takes a refit of 1 step or more, not {self.refit!r}")
        if self.coding is not None and not (isinstance(self.coding, Codec) and self.coding.takes_codes):
            raise ValueError(
                f"FittedFloat's coding is a codec that takes codes, such as Entropy(), not {self.coding!r}"
            )

    @property
    def needs_shape(self) -> bool:
        return True  # each layer has a scale of its own

    @property
    def codec(self) -> Codec:
        floats = MiniFloat(self.form)
        return floats if self.coding is None else Chain(floats, self.coding)

    def init(self, like: Tensor, seed: int) -> FittedFloatState:
        return FittedFloatState(0, 1.0, seed)

    def reduce(self, x: Tensor, state: FittedFloatState) -> Conversation:
        step, scale, seed = state
        x = x.to(working(x.dtype))
        if step % self.refit == 0 or (step < self.refit and step & (step - 1) == 0):
            reply = yield Message(_vote(x, self.form), Identity(), seed)
            # A rank with no nonzero entries has no vote; all ranks see a NaN.
            scale, step = _elected(reply.reduced, scale, step)
        reply = yield Message(x * scale, self.codec, seed)
        unscaled = Reply(reply.reduced / scale, reply.sent / scale)
        return unscaled, FittedFloatState(step + 1, scale, seed + STRIDE)


def _vote(x: Tensor, form: str) -> Tensor:
    """The base-2 logarithm of this rank's best scale, and whether it has one."""
    best = fitted_scale(x.flatten(), form) if x.numel() and (x != 0).any() else 0.0
    best = min(best, torch.finfo(x.dtype).max / 2)  # so that the elected scale is finite
    return torch.tensor([log2(best) if best > 0 else best, float(best != 0)], dtype=torch.float64, device=x.device)


def _elected(votes: Tensor, scale: float, step: int) -> tuple[float, int]:
    total, voters = votes.tolist()
    if not isfinite(total):
        return scale, step  # the next message is not finite either, so all ranks see it
    if not voters:
        return scale, -1  # all entries are zero on all ranks: fit again in the next step
    # A multiple of 2^(1/4) is accurate enough, and every machine computes the same one.
    quarters = round(total / voters * len(QUARTERS))
    return ldexp(QUARTERS[quarters % len(QUARTERS)], quarters // len(QUARTERS)), step
