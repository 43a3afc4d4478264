"""Numbers, rounded to signed integers of few bits that share a scale in each block."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .bits import pack, packed_bytes
from .buffers import side_by_side
from .compiled import loops_for, vector
from .layout import BY_CHANCE, NEAREST, TO_LEVELS, TO_NEAREST_POWER, TO_POWERS
from .threads import spread

LARGE = 2**14  # entries of a block beyond which its scale is not found in passing: it would not stay in the cache
WIDTHS = (2, 4, 8)  # bits of a code that loops write
FEW = 15  # levels up to which it is fastest to try each
CHANCES = 2**24  # as many as the digits of a 32-bit number tell apart


def levels(bits: int) -> int:
    """How many steps a scale has on each side of zero."""
    return int(2 ** (bits - 1) - 1)


def quantized(flat: Tensor, bits: int, block: int, key: int | None) -> tuple[Tensor, Tensor]:
    """The packed codes and the scales: each entry rounded to the nearest step, or, given a key, up or down by chance.

    A block that is not finite has a scale that is not, and no more to say.
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
    how = NEAREST if key is None else BY_CHANCE
    _filled(loops, flat, packed, scale, Rounding(bits, block, most, how, key or 0), bits, known)
    return packed, scale


def dithered(flat: Tensor, scale: Tensor, bits: int, block: int, most: int, key: int) -> Tensor:
    """The packed codes of entries in steps of a known scale, `most` at most, rounded up or down by chance."""
    loops = loops_for(flat, scale)
    if loops is None:
        return _stepped(flat, scale, bits, block, most, key)
    return _packed(loops, flat, scale, Rounding(bits, block, most, BY_CHANCE, key))


def levelled(flat: Tensor, scale: Tensor, bits: int, block: int, table: Tensor, key: int) -> Tensor:
    """The packed codes of entries whose sizes, in a known scale, are rounded by chance to a level below or above them.

    A code is the level's place in the table, which begins with 0 and increases, and its highest bit a sign.
    """
    table = table.to(flat)
    lows, gaps = table[:-1].contiguous(), table.diff()
    few = len(lows) <= FEW
    loops = loops_for(flat, scale) if few else None
    if loops is not None:
        return _packed(loops, flat, scale, Rounding(bits, block, 0, TO_LEVELS, key, lows, gaps))
    sizes, chances = in_scale(flat.abs(), scale, block), noise(flat, key)
    if few:
        places = torch.zeros(flat.numel(), dtype=torch.uint8, device=flat.device)
        for low, gap in zip(lows, gaps, strict=True):
            places += sizes > low + chances * gap
    else:
        cell = torch.bucketize(sizes, table, right=True).sub_(1).clamp_(0, len(lows) - 1)
        places = (cell + (sizes > lows[cell] + chances * gaps[cell])).to(torch.uint8)
    return pack(signed(places, flat, bits), bits)


def in_powers(flat: Tensor, scale: Tensor, bits: int, block: int, levels: int, key: int | None) -> Tensor:
    """As `levelled`, for so many levels that are powers of two, of which the scale is the highest.

    Without a key, sizes are rounded to the nearest.
    """
    loops = loops_for(flat, scale)
    if loops is not None:
        how = TO_NEAREST_POWER if key is None else TO_POWERS
        return _packed(loops, flat, scale, Rounding(bits, block, levels, how, key or 0))
    sizes = in_scale(flat.abs(), scale, block).to(torch.float32)
    chances = torch.full_like(sizes, 0.5) if key is None else noise(sizes, key)
    places = ((sizes.view(torch.int32) + (chances * 2**23).to(torch.int32)) >> 23) - (127 - levels)
    places = places.clamp_max_(levels).where(
        sizes >= 2.0 ** (1 - levels), (sizes * 2.0 ** (levels - 1) > chances).int()
    )
    return pack(signed(places.to(torch.uint8), flat, bits), bits)


def signed(places: Tensor, flat: Tensor, bits: int) -> Tensor:
    """Codes, with their highest bit set for what is negative, if it is not zero."""
    return places | ((flat < 0) & (places > 0)).to(torch.uint8) << (bits - 1)


class Rounding(NamedTuple):
    bits: int
    block: int
    most: int  # steps, or levels
    how: int
    key: int
    lows: Tensor = torch.empty(0)
    gaps: Tensor = torch.empty(0)


def _packed(loops: Any, flat: Tensor, scale: Tensor, by: Rounding) -> Tensor:
    """Codes of a width that loops do not write are joined after them."""
    width = by.bits if by.bits in WIDTHS else 8
    codes = torch.empty(packed_bytes(flat.numel(), width), dtype=torch.uint8)
    _filled(loops, flat, codes, scale, by, width)
    return codes if width == by.bits else pack(codes, by.bits)


def _filled(
    loops: Any, flat: Tensor, packed: Tensor, scale: Tensor, by: Rounding, width: int, known: bool = True
) -> None:
    x, out, scales = vector(flat), vector(packed), vector(scale)
    given = by.block, width, by.most, 1 << (by.bits - 1), by.how, vector(by.lows), vector(by.gaps), np.uint32(by.key)
    bits_of_x = x.view(np.int32)
    spread(lambda start, stop: loops.quantize(x, bits_of_x, *given, start, stop, scales, known, out), len(out))


def _stepped(flat: Tensor, scale: Tensor, bits: int, block: int, most: int, key: int | None) -> Tensor:
    steps = in_scale(flat, scale, block)
    steps = steps.round_() if key is None else steps.add_(noise(flat, key)).floor_()
    return pack(steps.clamp_(-most, most).add_(most).to(torch.uint8), bits)


def in_blocks(flat: Tensor, block: int) -> Tensor:
    """A row for each, with zeros behind the last."""
    rest = -flat.numel() % block
    return (pad(flat, (0, rest)) if rest else flat).view(-1, block)


def largest(flat: Tensor, block: int) -> Tensor:
    """The largest size in each block; NaN if there is one."""
    most = in_blocks(flat, block).abs().amax(1)
    return most.masked_fill_(most.isnan(), torch.nan)  # one of them all


def scales_of(norms: Tensor, most: int) -> Tensor:
    """What one of so many steps is, to which a norm is cut."""
    return (norms / most).clamp_min_(torch.finfo(norms.dtype).tiny)


def in_scale(flat: Tensor, scale: Tensor, block: int) -> Tensor:
    """The entries in the scales of their blocks, where that is finite; else 0."""
    return (in_blocks(flat, block) / scale[:, None]).view(-1)[: flat.numel()].nan_to_num_(0)


def noise(like: Tensor, key: int) -> Tensor:
    """A number from 0 to below 1 for each entry, by its place and the key: a hash that loops can compute anywhere."""
    h = torch.arange(like.numel(), device=like.device).add_(key).bitwise_and_(0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h.bitwise_xor_(h >> shift).mul_(factor).bitwise_and_(0xFFFFFFFF)
    h.bitwise_xor_(h >> 16).bitwise_right_shift_(8)
    return h.to(like.dtype).div_(CHANCES).view(like.shape)
