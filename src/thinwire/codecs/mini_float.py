from dataclasses import dataclass
from functools import cache
from math import inf, isfinite, nan
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Parts, PayloadError
from ..core.bounds import Bounds, contraction
from ..core.lazy import outline
from ..core.precision import working
from ..distributions import fit_by_likelihood, grid_scale
from ..entropy.grids import MINIFLOATS
from ..kernels.bits import pack, packed_bytes, unpack
from ..kernels.look_up import MANTISSA, looked_up, ranked
from .validation import check_parts

SAMPLE = 2**16  # entries that a scale is fitted to


class Tables(NamedTuple):
    ranks: Tensor  # of magnitudes, by exponent and first mantissa bits
    numbers: Tensor  # by code
    bits: int  # of the mantissa that decide the rank
    middle: int  # the code of zero


@dataclass(frozen=True, repr=False)
class MiniFloat(Codec):
    """Low-precision floats: rounds to 8 or 4 bits, and clamps to the largest number of the format.

    Examples:
        >>> import torch
        >>> from thinwire import MiniFloat
        >>> x = torch.tensor([0.3, -1.0, 1e6])
        >>> for form in ("fp8-152", "fp8-143"):
        ...     codec = MiniFloat(form)
        ...     print(form, codec.decode(codec.encode((x,), seed=0), seed=0)[0].tolist())
        fp8-152 [0.3125, -1.0, 57344.0]
        fp8-143 [0.3125, -1.0, 30.0]
    """

    form: str = "fp8-152"  # sign, exponent and mantissa bits: "fp8-152", "fp8-143" or "fp4-121"
    scaled: bool = False  # scale every tensor for the least error under its fitted distribution; the scale is sent

    numeric = False

    def __post_init__(self) -> None:
        if self.form not in MINIFLOATS:
            raise ValueError(f"MiniFloat is one of {', '.join(map(repr, MINIFLOATS))}, not {self.form!r}")

    def bounds(self, size: int) -> Bounds:
        return contraction(inf)  # entries below the range become zero

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten().to(working(x.dtype))
        grid, tables = MINIFLOATS[self.form], _tables(self.form)
        side: Parts = ()
        if self.scaled:
            side = (torch.tensor(fitted_scale(flat, self.form), dtype=flat.dtype, device=flat.device),)
            flat = flat * side[0]
        codes = ranked(flat, tables.ranks.to(x.device), tables.bits, tables.middle, 2**grid.bits - 1)
        return pack(codes, grid.bits), *side, outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        packed, *others = parts
        scale = others.pop(0) if self.scaled else None
        like, *below = others
        check_parts(like, packed, *(() if scale is None else (scale,)))
        grid, size = MINIFLOATS[self.form], like.numel()
        wide = working(like.dtype)
        if packed.dtype != torch.uint8 or packed.shape != (packed_bytes(size, grid.bits),):
            raise PayloadError(f"{packed.dtype} {tuple(packed.shape)} cannot be {size} codes of {grid.bits} bits")
        if scale is not None and (scale.dtype != wide or scale.shape != ()):
            raise PayloadError(f"{scale.dtype} {tuple(scale.shape)} cannot be the one scale of {like.dtype} entries")
        numbers = _tables(self.form).numbers.to(packed.device, wide)
        if scale is not None:
            limit = torch.finfo(like.dtype).max  # entries near it may have been rounded up
            numbers = (numbers / scale).clamp_(-limit, limit)
        x = looked_up(unpack(packed, size, grid.bits), numbers)
        return x.view(like.shape).to(like.dtype), *below


def fitted_scale(x: Tensor, form: str) -> float:
    """The scale with the least rounding error, for the distribution fitted to the entries.

    1 if all entries are zero, NaN if one is not finite.
    """
    largest = float(x.abs().amax()) if x.numel() else 0.0
    if not isfinite(largest):
        return nan
    if largest == 0:
        return 1.0
    distribution = fit_by_likelihood(x / largest, sample=SAMPLE, zeros=False)  # zeros are exact on every scale
    scale = grid_scale(torch.from_numpy(MINIFLOATS[form].numbers), distribution.shape) / distribution.scale
    return min(scale / largest, torch.finfo(x.dtype).max)


@cache
def _tables(form: str) -> Tables:
    grid = MINIFLOATS[form]
    numbers = torch.from_numpy(grid.numbers)
    middle = len(numbers) // 2
    sizes = numbers[middle:]
    edges = (sizes[1:] + sizes[:-1]) / 2  # each is the first float with its leading mantissa bits
    bits = int(form[-1]) + 1
    starts = (torch.arange(2 ** (8 + bits), dtype=torch.int32) << (MANTISSA - bits)).view(torch.float32).double()
    ranks = torch.bucketize(starts, edges, right=True)
    by_code = torch.full((2**grid.bits,), nan, dtype=torch.float64)
    by_code[: len(numbers)] = numbers
    return Tables(ranks.to(torch.uint8), by_code, bits, middle)
