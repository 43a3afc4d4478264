"""Quantization to signed integers of few bits, with a scale per block."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .bits import pack, packed_bytes
from .buffers import side_by_side
from .compiled import loops_for, vector
from .layout import NEAREST, STOCHASTIC, TO_LEVELS, TO_NEAREST_POWER, TO_POWERS
from .threads import spread

LARGE = 2**14  # entries per block above which scales are computed in a pass of their own: blocks leave the cache
WIDTHS = (2, 4, 8)  # bits of a code that loops write
FEW = 15  # levels up to which comparing with each is fastest
NOISE_VALUES = 2**24  # the precision of a 32-bit float


def levels(bits: int) -> int:
    """The number of quantization steps on each side of zero."""
    return int(2 ** (bits - 1) - 1)


def quantized(flat: Tensor, bits: int, block: int, key: int | None) -> tuple[Tensor, Tensor]:
    """The packed codes and the scales. Rounds to the nearest step or, given a key, stochastically.

    The scale of a block that is not finite is not finite, and its codes mean nothing.
    """
    blocks, most = -(-flat.numel() // block), levels(bits)
    loops = loops_for(flat) if bits in WIDTHS else None
    if loops is None:
        scale = scales_of(largest(flat, block), most)
        return _stepped(flat, scale, bits, block, most, key), scale
    packed, scale = side_by_side(packed_bytes(flat.numel(), bits), blocks, torch.float32)
    bits_of_x, scales, known = vector(flat).view(np.int32), vector(scale), block > LARGE
    if known:
        spread(lambda start, stop: loops.scales(bits_of_x, block, most, start, stop, scales), blocks)
    how = NEAREST if key is None else STOCHASTIC
    _quantize(loops, flat, packed, scale, Rounding(bits, block, most, how, key or 0), bits, known)
    return packed, scale


def dithered(flat: Tensor, scale: Tensor, bits: int, block: int, most: int, key: int) -> Tensor:
    """The packed codes of entries, stochastically rounded to at most `most` steps of a given scale."""
    loops = loops_for(flat, scale)
    if loops is None:
        return _stepped(flat, scale, bits, block, most, key)
    return _packed(loops, flat, scale, Rounding(bits, block, most, STOCHASTIC, key))


def leveled(flat: Tensor, scale: Tensor, bits: int, block: int, table: Tensor, key: int) -> Tensor:
    """The packed codes of entries whose magnitudes, in a given scale, are stochastically rounded to one of two levels.

    A code is the level's index in the table, which begins with 0 and increases; its highest bit is the sign.
    """
    table = table.to(flat)
    lows, gaps = table[:-1].contiguous(), table.diff()
    few = len(lows) <= FEW
    loops = loops_for(flat, scale) if few else None
    if loops is not None:
        return _packed(loops, flat, scale, Rounding(bits, block, 0, TO_LEVELS, key, lows, gaps))
    sizes, uniform = in_scale(flat.abs(), scale, block), noise(flat, key)
    if few:
        indices = torch.zeros(flat.numel(), dtype=torch.uint8, device=flat.device)
        for low, gap in zip(lows, gaps, strict=True):
            indices += sizes > low + uniform * gap
    else:
        cell = torch.bucketize(sizes, table, right=True).sub_(1).clamp_(0, len(lows) - 1)
        indices = (cell + (sizes > lows[cell] + uniform * gaps[cell])).to(torch.uint8)
    return pack(signed(indices, flat, bits), bits)


def in_powers(flat: Tensor, scale: Tensor, bits: int, block: int, levels: int, key: int | None) -> Tensor:
    """As `leveled`, for levels that are powers of two, of which the scale is the highest.

    Without a key, rounds to the nearest level.
    """
    loops = loops_for(flat, scale)
    if loops is not None:
        how = TO_NEAREST_POWER if key is None else TO_POWERS
        return _packed(loops, flat, scale, Rounding(bits, block, levels, how, key or 0))
    sizes = in_scale(flat.abs(), scale, block).to(torch.float32)
    uniform = torch.full_like(sizes, 0.5) if key is None else noise(sizes, key)
    indices = ((sizes.view(torch.int32) + (uniform * 2**23).to(torch.int32)) >> 23) - (127 - levels)
    indices = indices.clamp_max_(levels).where(
        sizes >= 2.0 ** (1 - levels), (sizes * 2.0 ** (levels - 1) > uniform).int()
    )
    return pack(signed(indices.to(torch.uint8), flat, bits), bits)


def signed(indices: Tensor, flat: Tensor, bits: int) -> Tensor:
    """The codes: level indices with the highest bit set for negative entries, unless the index is 0."""
    return indices | ((flat < 0) & (indices > 0)).to(torch.uint8) << (bits - 1)


class Rounding(NamedTuple):
    bits: int
    block: int
    most: int  # number of steps or levels
    how: int
    key: int
    lows: Tensor = torch.empty(0)
    gaps: Tensor = torch.empty(0)


def _packed(loops: Any, flat: Tensor, scale: Tensor, by: Rounding) -> Tensor:
    """Loops write codes of some widths; for others they write bytes, which are packed afterwards."""
    width = by.bits if by.bits in WIDTHS else 8
    codes = torch.empty(packed_bytes(flat.numel(), width), dtype=torch.uint8)
    _quantize(loops, flat, codes, scale, by, width)
    return codes if width == by.bits else pack(codes, by.bits)


def _quantize(
    loops: Any, flat: Tensor, packed: Tensor, scale: Tensor, by: Rounding, width: int, known: bool = True
) -> None:
    x, out, scales = vector(flat), vector(packed), vector(scale)
    arguments = (
        by.block,
        width,
        by.most,
        1 << (by.bits - 1),
        by.how,
        vector(by.lows),
        vector(by.gaps),
        np.uint32(by.key),
    )
    bits_of_x = x.view(np.int32)
    spread(lambda start, stop: loops.quantize(x, bits_of_x, *arguments, start, stop, scales, known, out), len(out))


def _stepped(flat: Tensor, scale: Tensor, bits: int, block: int, most: int, key: int | None) -> Tensor:
    steps = in_scale(flat, scale, block)
    steps = steps.round_() if key is None else steps.add_(noise(flat, key)).floor_()
    return pack(steps.clamp_(-most, most).add_(most).to(torch.uint8), bits)


def in_blocks(flat: Tensor, block: int) -> Tensor:
    """One block per row; the last is padded with zeros."""
    rest = -flat.numel() % block
    return (pad(flat, (0, rest)) if rest else flat).view(-1, block)


def largest(flat: Tensor, block: int) -> Tensor:
    """The largest magnitude in each block; NaN if an entry is NaN."""
    most = in_blocks(flat, block).abs().amax(1)
    return most.masked_fill_(most.isnan(), torch.nan)  # one bit pattern for all NaN


def scales_of(norms: Tensor, most: int) -> Tensor:
    """The size of a step, if each norm is divided into `most` steps."""
    return (norms / most).clamp_min_(torch.finfo(norms.dtype).tiny)


def in_scale(flat: Tensor, scale: Tensor, block: int) -> Tensor:
    """The entries divided by the scales of their blocks; 0 where that is not finite."""
    return (in_blocks(flat, block) / scale[:, None]).view(-1)[: flat.numel()].nan_to_num_(0)


def noise(like: Tensor, key: int) -> Tensor:
    """Uniform noise in [0, 1) for each entry: a hash of its index and the key, computable from any index on."""
    h = torch.arange(like.numel(), device=like.device).add_(key).bitwise_and_(0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h.bitwise_xor_(h >> shift).mul_(factor).bitwise_and_(0xFFFFFFFF)
    h.bitwise_xor_(h >> 16).bitwise_right_shift_(8)
    return h.to(like.dtype).div_(NOISE_VALUES).view(like.shape)
