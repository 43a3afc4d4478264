"""The base of codecs with exponentially spaced quantization levels."""

from abc import abstractmethod
from functools import cache
from math import inf, isfinite, nan

import torch
from torch import Tensor

from ..core import Codec, Parts
from ..core.lazy import Lazy, materialize, outline
from ..core.precision import working
from ..kernels.norms import norms
from ..kernels.quantized_tensor import Levels, QuantizedTensor
from .sampling import key_of
from .validation import check_parts


class Leveled(Codec):
    """Rounds magnitudes to zero or to scale * base**-k; sends packed codes and scales."""

    numeric = False

    @abstractmethod
    def quantized(self, flat: Tensor, key: int) -> Parts:
        """The packed codes and the scales."""

    @property
    @abstractmethod
    def level_table(self) -> Levels: ...

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten().to(working(x.dtype))
        return *self.quantized(flat, key_of(flat, seed)), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        x, below = self.decode_lazy(parts, seed)
        return materialize(x), *below

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        level_table = self.level_table
        return QuantizedTensor(
            packed, scale, level_table._replace(block=level_table.block or max(1, like.numel())), like
        ), tuple(below)


def check_base(codec: str, base: float) -> None:
    if not (isinstance(base, int | float) and not isinstance(base, bool) and 1 < base < inf):
        raise ValueError(f"{codec} takes a base above 1, not {base!r}")


def one_scale(flat: Tensor, scale: float) -> Tensor:
    """One scale for all entries; NaN if it is not finite, and large enough to divide by."""
    least = torch.finfo(flat.dtype).tiny
    return flat.new_full((1 if flat.numel() else 0,), max(scale, least) if isfinite(scale) else nan)


def peak(flat: Tensor) -> float:
    """The largest magnitude, 0 for an empty tensor; NaN if an entry is NaN."""
    return float(norms(flat, flat.numel(), inf)) if flat.numel() else 0.0


@cache
def powers(base: float, levels: int) -> Tensor:
    """Zero and `levels` powers of the base, the largest of which is 1."""
    exponents = torch.arange(1 - levels, 1, dtype=torch.float64)
    return torch.cat([torch.zeros(1, dtype=torch.float64), torch.tensor(base, dtype=torch.float64).pow(exponents)])


@cache
def both_signs(base: float, levels: int, bits: int) -> Tensor:
    """The value of each code: the index of a level and, in the highest bit, its sign. Unused codes are NaN."""
    half = torch.full((2 ** (bits - 1),), nan, dtype=torch.float64)
    half[: levels + 1] = powers(base, levels)
    return torch.cat([half, -half])
