from dataclasses import dataclass
from math import frexp, isfinite, ldexp, nan

import torch
from torch import Tensor

from ..core import Parts
from ..core.bounds import Bounds, unbiased
from ..kernels.quantization import in_powers
from ..kernels.quantized_tensor import Levels
from .exponential_dither import between
from .leveled import Leveled, both_signs, one_scale, peak

BITS, LEVELS = 8, 127


@dataclass(frozen=True, repr=False)
class NaturalCompression(Leveled):
    """Natural compression (Horvath et al., 2019): unbiased stochastic rounding to powers of two, in 8 bits.

    Sends the largest power, and per entry a sign and one of 127 levels: the 9 bits of a float's sign and exponent would
    cover a range that no gradient needs.

    Examples:
        >>> import torch
        >>> from thinwire import NaturalCompression
        >>> x = torch.full((1000,), 1.25)
        >>> codec = NaturalCompression()
        >>> (y,) = codec.decode(codec.encode((x,), seed=0), seed=0)
        >>> y.unique().tolist(), bool(abs(y.mean() - 1.25) < 0.05)  # unbiased
        ([1.0, 2.0], True)
    """

    @property
    def level_table(self) -> Levels:
        return Levels(BITS, both_signs(2, LEVELS, BITS))

    def bounds(self, size: int) -> Bounds:
        return unbiased(between(2) + size**0.5 * 2.0 ** (1 - LEVELS))

    def quantized(self, flat: Tensor, key: int) -> Parts:
        scale = one_scale(flat, power_above(flat))
        return in_powers(flat, scale, BITS, max(1, flat.numel()), LEVELS, key), scale


def power_above(flat: Tensor) -> float:
    """The power of two that no magnitude exceeds, or the largest finite one; NaN if an entry is not finite."""
    most = peak(flat)
    if not isfinite(most):
        return nan
    return ldexp(1.0, min(frexp(most)[1], frexp(torch.finfo(flat.dtype).max)[1] - 1))
