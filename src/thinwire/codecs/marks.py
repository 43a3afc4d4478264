from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Codec, Parts, PayloadError, outline
from ..kernels import gaps
from ..kernels.bits import pack, packed_bytes, unpack
from ..precision import working
from .hostile import check_parts
from .sparse import scatter


@dataclass(frozen=True, repr=False)
class Marks(Codec):
    """Sends where entries are not zero and their signs; all of them get their mean size."""

    variable = True
    numeric = False

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten()
        where = flat.nonzero().squeeze(1)
        values = flat[where]
        signs = pack((values < 0).to(torch.uint8), 1)
        return *gaps.encode(where, flat.numel()), signs, size_of(values), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        rests, lows, signs, size, like, *below = parts
        check_parts(like, rests, lows, signs, size)
        where = gaps.decode(rests, lows, like.numel())
        if signs.dtype != torch.uint8 or signs.numel() != packed_bytes(where.numel(), 1):
            raise PayloadError(f"{signs.numel()} bytes cannot be the signs of {where.numel()} entries")
        return scatter(signed(unpack(signs, where.numel(), 1), size), where, like), *below


def size_of(values: Tensor) -> Tensor:
    """The mean size; in 64 bits, so that the mean of equal sizes of 32 bits is that size."""
    return (values.abs().sum(dtype=torch.float64) / max(values.numel(), 1)).to(working(values.dtype))


def signed(negative: Tensor, size: Tensor) -> Tensor:
    return (1 - 2 * negative.to(size.dtype)) * size
