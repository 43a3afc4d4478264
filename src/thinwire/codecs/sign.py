from dataclasses import dataclass

from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import Bounds, contraction
from ..core.lazy import Lazy, materialize, outline
from ..core.precision import working
from ..kernels.quantized_tensor import QuantizedTensor, Uniform
from ..kernels.sign_bits import signs
from .validation import check_parts


@dataclass(frozen=True, repr=False)
class Sign(Codec):
    """Scaled sign compression (EF-SignSGD, Karimireddy et al., 2019): one bit per entry, and the mean magnitude.

    Examples:
        >>> import torch
        >>> from thinwire import Sign
        >>> bits, scale, outline = Sign().encode((torch.tensor([0.5, -3.5, 1.0, -1.0]),), seed=0)
        >>> bits.nbytes, scale.item()
        (1, 1.5)
        >>> Sign().decode((bits, scale, outline), seed=0)[0].tolist()
        [1.5, -1.5, 1.5, -1.5]
    """

    numeric = False

    def bounds(self, size: int) -> Bounds:
        return contraction(size)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return *signs(x.flatten().to(working(x.dtype))), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        x, below = self.decode_lazy(parts, seed)
        return materialize(x), *below

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        packed, scale, like, *below = parts
        check_parts(like, packed, scale)
        return QuantizedTensor(packed, scale, Uniform(bits=1, factor=-2, offset=1), like), tuple(below)
