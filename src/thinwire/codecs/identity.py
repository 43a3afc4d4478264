from dataclasses import dataclass

from ..core import Codec, Parts
from ..core.bounds import LOSSLESS, Bounds


@dataclass(frozen=True, repr=False)
class Identity(Codec):
    """No compression: sends the tensor unchanged.

    Examples:
        >>> import torch
        >>> from thinwire import Identity
        >>> parts = Identity().encode((torch.tensor([1.0, -2.0]),), seed=0)
        >>> Identity().decode(parts, seed=0)
        (tensor([ 1., -2.]),)
    """

    linear = True

    def bounds(self, size: int) -> Bounds:
        return LOSSLESS

    def encode(self, parts: Parts, seed: int) -> Parts:
        return parts

    def decode(self, parts: Parts, seed: int) -> Parts:
        return parts
