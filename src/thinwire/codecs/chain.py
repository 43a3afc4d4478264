from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import LOSSLESS, UNKNOWN, Bounds, then
from ..core.lazy import DeferredDifference, Lazy

STRIDE = 2_654_435_761  # between the seeds of codecs, so that each samples independently
MANY = 10**6  # entries


@dataclass(frozen=True, repr=False, init=False)
class Chain(Codec):
    """Composition of codecs: each encodes the values that the one before leaves, such as top-k, then quantization.

    Examples:
        >>> import torch
        >>> from thinwire import Cast, Chain, Quantize, TopK
        >>> x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
        >>> for codec in (TopK(0.01), Chain(TopK(0.01), Cast("float16")), Chain(TopK(0.01), Quantize(8))):
        ...     print(codec, sum(part.nbytes for part in codec.encode((x,), seed=0) if not part.is_meta))
        TopK(0.01) 508
        Chain(TopK(0.01), Cast('float16')) 308
        Chain(TopK(0.01), Quantize(8)) 212
        >>> Chain(Quantize(8), TopK(0.01))
        Traceback (most recent call last):
        ValueError: TopK(0.01) needs numbers and cannot follow Quantize(8), which leaves codes
    """

    codecs: tuple[Codec, ...]

    def __init__(self, *codecs: Codec) -> None:
        if not codecs:
            raise ValueError("Chain() needs at least one codec")
        for codec in codecs:
            if not isinstance(codec, Codec):
                raise ValueError(f"Chain takes codecs, not {codec!r}")
        for first, second in pairwise(codecs):
            if not first.numeric and not second.takes_codes:
                raise ValueError(f"{second!r} needs numbers and cannot follow {first!r}, which leaves codes")
        object.__setattr__(self, "codecs", codecs)

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.codecs))})"

    @property
    def linear(self) -> bool:  # type: ignore[override]  # a property where others have a constant
        return all(codec.linear for codec in self.codecs)

    @property
    def variable(self) -> bool:  # type: ignore[override]
        return any(codec.variable for codec in self.codecs)

    @property
    def numeric(self) -> bool:  # type: ignore[override]
        return self.codecs[-1].numeric

    @property
    def takes_codes(self) -> bool:  # type: ignore[override]
        return self.codecs[0].takes_codes

    def bounds(self, size: int) -> Bounds:
        known, certain = LOSSLESS, True
        for codec in self.codecs:
            if not certain and codec.entries(MANY) < MANY:
                return UNKNOWN  # it keeps a ratio of an unknown number of entries
            known, size = then(known, codec.bounds(size)), codec.entries(size)
            certain = certain and not (codec.numeric and codec.variable)
        return known

    def entries(self, size: int) -> int:
        for codec in self.codecs:
            size = codec.entries(size)
        return size

    def encode(self, parts: Parts, seed: int) -> Parts:
        for i, codec in enumerate(self.codecs):
            parts = codec.encode(parts, _seed(seed, i))
        return parts

    def decode(self, parts: Parts, seed: int) -> Parts:
        for i, codec in reversed(list(enumerate(self.codecs))):
            parts = codec.decode(parts, _seed(seed, i))
        return parts

    def pick(self, x: Tensor, rest: DeferredDifference, decay: float, out: Tensor) -> Tensor | Lazy:
        return self.codecs[0].pick(x, rest, decay, out)

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> Parts:
        parts = self.codecs[0].encode_lazy(x, seed)
        for i, codec in enumerate(self.codecs[1:], start=1):
            parts = codec.encode(parts, _seed(seed, i))
        return parts

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        for i, codec in reversed(list(enumerate(self.codecs[1:], start=1))):
            parts = codec.decode(parts, _seed(seed, i))
        return self.codecs[0].decode_lazy(parts, seed)


def _seed(seed: int, index: int) -> int:
    """The seed of the codec at this index."""
    return (seed + index * STRIDE) % 2**63 if index else seed
