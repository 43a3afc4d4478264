from dataclasses import dataclass
from math import ceil, isfinite, log, nan

import torch
from torch import Tensor

from ..core import Parts
from ..core.bounds import Bounds, contraction
from ..kernels.quantization import in_powers, in_scale, signed
from ..kernels.quantized_tensor import Levels
from .leveled import Leveled, both_signs, check_base, one_scale, peak, powers
from .natural_compression import BITS, LEVELS, power_above


@dataclass(frozen=True, repr=False)
class Round(Leveled):
    """Deterministic rounding to the nearest power of a base, in 8 bits: the largest power, 126 below it, and zero.

    Examples:
        >>> import torch
        >>> from thinwire import Round
        >>> codec = Round()
        >>> codec.decode(codec.encode((torch.tensor([0.9, -2.2, 0.3]),), seed=0), seed=0)[0].tolist()
        [1.0, -2.0, 0.25]
    """

    base: float = 2  # of the powers; lower: smaller error, smaller range

    def __post_init__(self) -> None:
        check_base("Round", self.base)

    @property
    def level_table(self) -> Levels:
        return Levels(BITS, both_signs(self.base, LEVELS, BITS))

    def bounds(self, size: int) -> Bounds:
        # The error is largest in the middle between two powers, or just below half the lowest one, which becomes zero.
        lowest = float(powers(self.base, LEVELS)[1]) / 2 * self.base
        zeros = (size - 1) * lowest**2
        return contraction((self.base + 1) ** 2 / (4 * self.base) * (1 + zeros))

    def quantized(self, flat: Tensor, key: int) -> Parts:
        if self.base == 2:
            scale = one_scale(flat, power_above(flat))
            return in_powers(flat, scale, BITS, max(1, flat.numel()), LEVELS, None), scale
        scale = one_scale(flat, self._power_above(flat))
        table = powers(self.base, LEVELS).to(flat)
        middles = (table[1:] + table[:-1]) / 2
        sizes = in_scale(flat.abs(), scale, max(1, flat.numel()))
        indices = torch.bucketize(sizes, middles, right=True).to(torch.uint8)
        return signed(indices, flat, BITS), scale

    def _power_above(self, flat: Tensor) -> float:
        """The power of the base that no magnitude exceeds, or the largest finite one; NaN if an entry is not finite."""
        most = peak(flat)
        if not isfinite(most) or most == 0:
            return most if most == 0 else nan
        largest = torch.finfo(flat.dtype).max
        power = ceil(log(most) / log(self.base))
        while power * log(self.base) > log(largest):
            power -= 1
        return min(float(self.base**power), largest)
