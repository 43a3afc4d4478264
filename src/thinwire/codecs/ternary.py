from dataclasses import dataclass
from math import inf

import torch

from ..core import Codec, Parts
from ..kernels.bits import pack, unpack
from ..lazy import outline
from ..precision import working
from .hostile import check_parts


@dataclass(frozen=True, repr=False)
class Ternary(Codec):
    """Keeps the sign of the larger entries, with their mean magnitude, and zeroes the rest."""

    threshold: float = 0.7  # in mean magnitudes, below which an entry is zero; 0.7 is near the best for a bell curve

    numeric = False

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < inf:
            raise ValueError(f"Ternary takes a threshold of 0 or more, not {self.threshold!r}")

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten().to(working(x.dtype))
        magnitude = flat.abs()
        large = magnitude > self.threshold * magnitude.sum() / max(flat.numel(), 1)
        scale = (magnitude * large).sum() / large.sum().clamp_min(1)
        codes = (flat.sign() * large).to(torch.int8) + 1
        return pack(codes.to(torch.uint8), 2), scale, outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        codes = unpack(packed, like.numel(), 2).to(scale.dtype)
        return codes.sub_(1).mul_(scale).to(like.dtype).view(like.shape), *below
