import zlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import Codec, Parts
from ..kernels.bits import pack, unpack
from ..lazy import outline
from ..precision import working
from .hostile import check_parts

SAMPLE = 1024  # entries, at least, if there are as many


@dataclass(frozen=True, repr=False)
class Quantize(Codec):
    """Rounds to signed integers that share one scale in each block."""

    bits: int  # 2 to 8; lower: less is sent
    stochastic: bool = False  # round up or down by chance, so that the error is zero on average
    block: int = 512  # entries that share a scale; lower: finer, and more scales are sent

    numeric = False

    def __post_init__(self) -> None:
        if not (isinstance(self.bits, int) and 2 <= self.bits <= 8):
            raise ValueError(f"Quantize takes 2 to 8 bits, not {self.bits!r}")
        if not (isinstance(self.block, int) and self.block > 0):
            raise ValueError(f"Quantize takes blocks of 1 entry or more, not {self.block!r}")

    @property
    def levels(self) -> int:
        """How many steps the scale has on each side of zero."""
        return int(2 ** (self.bits - 1) - 1)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten().to(working(x.dtype))
        blocks = _in_blocks(flat, self.block)
        scale = blocks.abs().amax(1).div_(self.levels).clamp_min_(torch.finfo(flat.dtype).tiny)
        steps = (blocks / scale[:, None]).view(-1)[: flat.numel()]
        steps = steps.add_(_noise(flat, seed)).floor_() if self.stochastic else steps.round_()
        codes = steps.clamp_(-self.levels, self.levels).add_(self.levels).to(torch.uint8)
        return pack(codes, self.bits), scale, outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        codes = unpack(packed, like.numel(), self.bits).to(scale.dtype).sub_(self.levels)
        blocks = _in_blocks(codes, self.block).mul_(scale[:, None])
        return blocks.view(-1)[: like.numel()].to(like.dtype).view(like.shape), *below


def _in_blocks(flat: Tensor, block: int) -> Tensor:
    rest = -flat.numel() % block
    return (pad(flat, (0, rest)) if rest else flat).view(-1, block)


def _noise(x: Tensor, seed: int) -> Tensor:
    # The seed is shared by all peers; if the noise were too, their rounding errors would not average out.
    # The data itself tells the peers apart: a sample of it, which costs nothing next to drawing the noise.
    sample = x[:: max(1, x.numel() // SAMPLE)].cpu().numpy().tobytes()
    generator = torch.Generator(x.device).manual_seed(zlib.crc32(sample, seed % 2**32))  # it takes no more than 32 bits
    return torch.rand(x.shape, dtype=x.dtype, device=x.device, generator=generator)
