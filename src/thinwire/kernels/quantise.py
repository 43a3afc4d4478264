"""Numbers, rounded to signed integers of few bits that share a scale in each block."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .bits import pack, packed_bytes
from .buffers import side_by_side
from .compiled import loops_for, vector
from .threads import spread

LARGE = 2**14  # entries of a block beyond which its scale is not found in passing: it would not stay in the cache
CHANCES = 2**24  # as many as the digits of a 32-bit number tell apart


def levels(bits: int) -> int:
    """How many steps a scale has on each side of zero."""
    return int(2 ** (bits - 1) - 1)


def quantised(flat: Tensor, bits: int, block: int, key: int | None) -> tuple[Tensor, Tensor]:
    """The packed codes and the scales: each entry rounded to the nearest step, or, given a key, up or down by chance.

    A block that is not finite has a scale that is not, and no more to say.
    """
    size, blocks = flat.numel(), -(-flat.numel() // block)
    loops = loops_for(flat) if bits in (2, 4, 8) else None
    if loops is None:
        return _plainly(flat, bits, block, key)
    packed, scale = side_by_side(packed_bytes(size, bits), blocks, torch.float32)
    x, scales, known = vector(flat), vector(scale), block > LARGE
    bits_of_x = x.view(np.int32)
    if known:
        spread(lambda start, stop: loops.scales(bits_of_x, block, levels(bits), start, stop, scales), blocks)
    given = x, bits_of_x, block, bits, key is not None, np.uint32(key or 0)
    spread(lambda start, stop: loops.quantise(*given, start, stop, scales, known, vector(packed)), packed.numel())
    return packed, scale


def _plainly(flat: Tensor, bits: int, block: int, key: int | None) -> tuple[Tensor, Tensor]:
    most = levels(bits)
    rest = -flat.numel() % block
    blocks = (pad(flat, (0, rest)) if rest else flat).view(-1, block)
    scale = blocks.abs().amax(1).div_(most).clamp_min_(torch.finfo(flat.dtype).tiny)
    scale.masked_fill_(scale.isnan(), torch.nan)  # one of them all
    steps = (blocks / scale[:, None]).view(-1)[: flat.numel()].nan_to_num_(0)
    steps = steps.round_() if key is None else steps.add_(noise(flat, key)).floor_()
    return pack(steps.clamp_(-most, most).add_(most).to(torch.uint8), bits), scale


def noise(like: Tensor, key: int) -> Tensor:
    """A number from 0 to below 1 for each entry, by its place and the key: a hash that loops can compute anywhere."""
    h = (torch.arange(like.numel(), device=like.device) + key) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h = ((h ^ (h >> shift)) * factor) & 0xFFFFFFFF
    return (((h ^ (h >> 16)) >> 8).to(like.dtype) / CHANCES).view(like.shape)
