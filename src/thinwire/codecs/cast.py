from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import Bounds, contraction
from ..core.lazy import outline
from .validation import check_parts

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, repr=False)
class Cast(Codec):
    """Casts to 16-bit floats. Values beyond the range are clamped to its limit, never sent as infinity.

    Examples:
        >>> import torch
        >>> from thinwire import Cast
        >>> codec = Cast("float16")
        >>> signal, outline = codec.encode((torch.tensor([0.5, 1e6]),), seed=0)
        >>> signal.nbytes, outline.is_meta  # the outline is a shape and a type, and takes no bytes
        (4, True)
        >>> codec.decode((signal, outline), seed=0)[0].tolist()
        [0.5, 65504.0]
    """

    dtype: str  # "float16": finer; "bfloat16": wider range

    linear = True

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"Cast takes {' or '.join(map(repr, DTYPES))}, not {self.dtype!r}")

    def bounds(self, size: int) -> Bounds:
        half = torch.finfo(DTYPES[self.dtype]).eps / 2
        return contraction(1 / (1 - half**2))

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return _within(x, DTYPES[self.dtype]), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        signal, like, *below = parts
        check_parts(like, signal)
        return _within(signal, like.dtype), *below


def _within(x: Tensor, dtype: torch.dtype) -> Tensor:
    limit = torch.finfo(dtype).max
    return x.to(dtype).clamp_(-limit, limit) if limit < torch.finfo(x.dtype).max else x.to(dtype)
