from dataclasses import dataclass
from math import inf, sqrt

from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import Bounds, unbiased
from ..core.lazy import Lazy, materialize, outline
from ..core.precision import working
from ..kernels.norms import norms
from ..kernels.quantization import dithered, scales_of
from ..kernels.quantized_tensor import QuantizedTensor, Uniform
from .sampling import key_of
from .validation import check_parts

NORMS = {"max": inf}


@dataclass(frozen=True, repr=False)
class Dither(Codec):
    """QSGD (Alistarh et al., 2017): unbiased stochastic rounding to multiples of norm / levels.

    Sends one norm per block and a packed integer per entry.

    Examples:
        >>> import torch
        >>> from thinwire import Dither
        >>> x = torch.tensor([0.3, -0.8, 0.0, 0.1])
        >>> codec = Dither(4, norm="max")
        >>> decoded = [codec.decode(codec.encode((x,), seed), seed)[0] for seed in range(1000)]
        >>> [round(value, 1) for value in decoded[0].tolist()]  # multiples of 0.8 / 4
        [0.4, -0.8, 0.0, 0.2]
        >>> bool((torch.stack(decoded).mean(0) - x).abs().max() < 0.01)  # unbiased
        True
    """

    levels: int  # steps from zero to the norm, 1 to 127; lower: fewer bytes
    norm: float | str = 2  # the power of the norm, 1 or more, or "max"
    block: int | None = None  # entries that share a norm; None: all

    numeric = False

    def __post_init__(self) -> None:
        if not (isinstance(self.levels, int) and 1 <= self.levels <= 127):
            raise ValueError(f"Dither takes 1 to 127 levels, not {self.levels!r}")
        check_norm("Dither", self.norm, self.block)

    @property
    def bits(self) -> int:
        """Bits per code: enough for all levels of both signs."""
        return (2 * self.levels).bit_length()

    def bounds(self, size: int) -> Bounds:
        entries, power = min(size, self.block or size), power_of(self.norm)
        if power == inf:  # the largest entry is a level, so it has no error
            return unbiased((1 + sqrt(1 + (entries - 1) / self.levels**2)) / 2)
        spread = entries * longest(power, entries) ** 2 / self.levels**2
        return unbiased(1 + spread / 4 if spread <= 4 else sqrt(spread))

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten().to(working(x.dtype))
        block = self.block or max(1, flat.numel())
        scale = scales_of(norms(flat, block, power_of(self.norm)), self.levels)
        packed = dithered(flat, scale, self.bits, block, self.levels, key_of(flat, seed))
        return packed, scale, outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        x, below = self.decode_lazy(parts, seed)
        return materialize(x), *below

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        block = self.block or max(1, like.numel())
        return QuantizedTensor(packed, scale, Uniform(self.bits, 1, -self.levels, block), like), tuple(below)


def check_norm(codec: str, norm: float | str, block: int | None) -> None:
    if not (norm in NORMS or (isinstance(norm, int | float) and not isinstance(norm, bool) and 1 <= norm < inf)):
        raise ValueError(f"{codec} takes the power of a norm, 1 or more, or 'max', not {norm!r}")
    if block is not None and not (isinstance(block, int) and block > 0):
        raise ValueError(f"{codec} takes blocks of 1 entry or more, or None for all together, not {block!r}")


def power_of(norm: float | str) -> float:
    return NORMS[norm] if isinstance(norm, str) else float(norm)


def longest(power: float, size: int) -> float:
    """The largest ratio of this norm to the Euclidean norm."""
    return float(size ** max(0.0, 1 / power - 1 / 2))
