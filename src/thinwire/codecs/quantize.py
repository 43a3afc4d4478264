from dataclasses import dataclass
from math import sqrt

from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import Bounds, contraction, unbiased
from ..core.lazy import Lazy, materialize, outline
from ..core.precision import working
from ..kernels.quantization import levels, quantized
from ..kernels.quantized_tensor import QuantizedTensor, Uniform
from .sampling import key_of
from .validation import check_parts


@dataclass(frozen=True, repr=False)
class Quantize(Codec):
    """Block-wise integer quantization: signed integers of 2 to 8 bits, with one scale (maximum) per block.

    Examples:
        >>> import torch
        >>> from thinwire import Quantize
        >>> x = torch.tensor([0.3, -1.0, 0.0, 0.8])
        >>> for bits in (8, 4, 2):
        ...     codec = Quantize(bits)
        ...     (y,) = codec.decode(codec.encode((x,), seed=0), seed=0)
        ...     print(bits, [round(value, 3) for value in y.tolist()])
        8 [0.299, -1.0, 0.0, 0.803]
        4 [0.286, -1.0, 0.0, 0.857]
        2 [0.0, -1.0, 0.0, 1.0]
    """

    bits: int  # 2 to 8; lower: fewer bytes
    stochastic: bool = False  # stochastic rounding: unbiased
    block: int = 512  # entries per scale; lower: smaller error, more scales are sent

    numeric = False

    def __post_init__(self) -> None:
        if not (isinstance(self.bits, int) and 2 <= self.bits <= 8):
            raise ValueError(f"Quantize takes 2 to 8 bits, not {self.bits!r}")
        if not (isinstance(self.block, int) and self.block > 0):
            raise ValueError(f"Quantize takes blocks of 1 entry or more, not {self.block!r}")

    @property
    def levels(self) -> int:
        """Number of quantization steps on each side of zero."""
        return levels(self.bits)

    def bounds(self, size: int) -> Bounds:
        # The largest entry of a block is exact; the largest error is half a step.
        others = (min(size, self.block) - 1) / self.levels**2
        return unbiased((1 + sqrt(1 + others)) / 2) if self.stochastic else contraction(1 + others / 4)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten().to(working(x.dtype))
        key = key_of(flat, seed) if self.stochastic else None
        return *quantized(flat, self.bits, self.block, key), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        x, below = self.decode_lazy(parts, seed)
        return materialize(x), *below

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        return QuantizedTensor(packed, scale, Uniform(self.bits, 1, -self.levels, self.block), like), tuple(below)
