from dataclasses import dataclass

import torch

from ..core import Codec, Parts
from ..kernels.bits import pack, unpack
from ..lazy import outline
from ..precision import working
from .hostile import check_parts


@dataclass(frozen=True, repr=False)
class Sign(Codec):
    """Keeps one bit of each entry, and the mean magnitude of all."""

    numeric = False

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        scale = x.abs().sum(dtype=working(x.dtype)) / max(x.numel(), 1)
        return pack((x.flatten() < 0).to(torch.uint8), 1), scale, outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        negative = unpack(packed, like.numel(), 1).to(scale.dtype)
        return negative.mul_(-2).add_(1).mul_(scale).to(like.dtype).view(like.shape), *below
