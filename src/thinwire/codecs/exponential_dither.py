from dataclasses import dataclass
from math import log2

from torch import Tensor

from ..core import Parts
from ..core.bounds import Bounds, unbiased
from ..kernels.norms import norms
from ..kernels.quantization import in_powers, leveled, scales_of
from ..kernels.quantized_tensor import Levels
from .dither import check_norm, longest, power_of
from .leveled import Leveled, both_signs, check_base, powers


@dataclass(frozen=True, repr=False)
class ExponentialDither(Leveled):
    """Natural dithering (Horvath et al., 2019): unbiased stochastic rounding to powers of a base times the norm.

    Levels are closer together for small entries. Sends one norm per block and a packed code per entry.

    Examples:
        >>> import torch
        >>> from thinwire import ExponentialDither
        >>> codec = ExponentialDither(2, levels=3)
        >>> x = torch.tensor([0.3, -1.0, 0.05, 0.6])
        >>> codec.decode(codec.encode((x,), seed=0), seed=0)[0].tolist()
        [0.25, -1.0, 0.0, 1.0]
    """

    base: float = 2  # of the powers; 2: natural dithering; higher: coarser levels, wider range
    levels: int = 7  # above zero, 1 to 127: 1 takes 2 bits, 3 take 3, 7 take 4, 15 take 5
    norm: float | str = "max"  # the power of the norm, 1 or more, or "max"
    block: int | None = None  # entries that share a norm; None: all

    def __post_init__(self) -> None:
        check_base("ExponentialDither", self.base)
        if not (isinstance(self.levels, int) and 1 <= self.levels <= 127):
            raise ValueError(f"ExponentialDither takes 1 to 127 levels, not {self.levels!r}")
        check_norm("ExponentialDither", self.norm, self.block)

    @property
    def bits(self) -> int:
        """Bits per code: a sign, and enough for zero and all levels."""
        return 1 + self.levels.bit_length()

    @property
    def level_table(self) -> Levels:
        return Levels(self.bits, both_signs(self.base, self.levels, self.bits), self.block)

    def bounds(self, size: int) -> Bounds:
        entries = min(size, self.block or size)
        # Between two levels, and below the lowest: there the error is at most the lowest level.
        low = entries**0.5 * longest(power_of(self.norm), entries) * 2 ** ((1 - self.levels) * log2(self.base))
        return unbiased(between(self.base) + low * min(1.0, low))

    def quantized(self, flat: Tensor, key: int) -> Parts:
        block = self.block or max(1, flat.numel())
        scale = scales_of(norms(flat, block, power_of(self.norm)), 1)
        if self.base == 2:
            return in_powers(flat, scale, self.bits, block, self.levels, key), scale
        return leveled(flat, scale, self.bits, block, powers(self.base, self.levels), key), scale


def between(base: float) -> float:
    """The expected growth of a squared magnitude under stochastic rounding to powers of a base."""
    return (base + 1 / base + 2) / 4
