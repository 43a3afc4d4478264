from dataclasses import dataclass
from math import isfinite, ldexp, log2
from typing import NamedTuple

import torch
from torch import Tensor

from ..codecs import Chain, Entropy, Identity, MiniFloat
from ..codecs.mini_float import matched
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
    """Rounds to small floats, on a scale that all ranks agree on every so many steps and that suits the law of entries.

    Each rank fits a generalized normal law to its own; the mean, by ratio, of the scales that lose least is taken.
    """

    form: str = "fp4-121"  # as of MiniFloat
    refit: int = 100  # steps between fits, at most: at the start they are 1, 1, 2, 4, 8, ... apart
    coding: Codec | None = Entropy(GenNorm(grid="fp4-121"))  # what codes are squeezed with; None: they are not

    def __post_init__(self) -> None:
        MiniFloat(self.form)
        if not (isinstance(self.refit, int) and self.refit > 0):
            raise ValueError(f"FittedFloat fits anew after 1 step or more, not {self.refit!r}")
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
            # A rank that had nothing to fit has no vote; NaN is heard by all.
            scale, step = _elected(reply.reduced, scale, step)
        reply = yield Message(x * scale, self.codec, seed)
        said = Reply(reply.reduced / scale, reply.sent / scale)
        return said, FittedFloatState(step + 1, scale, seed + STRIDE)


def _vote(x: Tensor, form: str) -> Tensor:
    """The logarithm to base 2 of the scale that is best here, and whether there is one."""
    best = matched(x.flatten(), form) if x.numel() and (x != 0).any() else 0.0
    best = min(best, torch.finfo(x.dtype).max / 2)  # so that what is elected is a number, too
    return torch.tensor([log2(best) if best > 0 else best, float(best != 0)], dtype=torch.float64, device=x.device)


def _elected(votes: Tensor, scale: float, step: int) -> tuple[float, int]:
    total, voters = votes.tolist()
    if not isfinite(total):
        return scale, step  # and so is what is said next
    if not voters:
        return scale, -1  # nobody had anything: again in the next step
    # A quarter of a doubling is as good, and every machine computes the same one.
    quarters = round(total / voters * len(QUARTERS))
    return ldexp(QUARTERS[quarters % len(QUARTERS)], quarters // len(QUARTERS)), step
