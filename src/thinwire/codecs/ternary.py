from dataclasses import dataclass
from math import inf

from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import UNKNOWN, Bounds, contraction
from ..core.lazy import Lazy, materialize, outline
from ..core.precision import working
from ..kernels.quantized_tensor import QuantizedTensor, Uniform
from ..kernels.sign_bits import ternary
from .validation import check_parts


@dataclass(frozen=True, repr=False)
class Ternary(Codec):
    """Ternary quantization with a threshold: -1, 0 or 1 per entry, times the mean magnitude of the nonzero ones.

    Examples:
        >>> import torch
        >>> from thinwire import Ternary
        >>> codec = Ternary()
        >>> codec.decode(codec.encode((torch.tensor([0.1, -3.0, 1.0, 0.0]),), seed=0), seed=0)[0].tolist()
        [0.0, -2.0, 2.0, 0.0]
    """

    threshold: float = 0.7  # in mean magnitudes, below which an entry is zero; 0.7 is near the best for normal entries

    numeric = False

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < inf:
            raise ValueError(f"Ternary takes a threshold of 0 or more, not {self.threshold!r}")

    def bounds(self, size: int) -> Bounds:
        # From a threshold of 1 on, it may be that no entry is above it.
        return contraction(size / (1 - self.threshold) ** 2) if self.threshold < 1 else UNKNOWN

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return *ternary(x.flatten().to(working(x.dtype)), self.threshold), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        x, below = self.decode_lazy(parts, seed)
        return materialize(x), *below

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        return QuantizedTensor(packed, scale, Uniform(bits=2, factor=1, offset=-1), like), tuple(below)
