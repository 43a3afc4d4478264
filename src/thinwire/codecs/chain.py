from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from ..core import Codec, Parts
from ..lazy import Lazy, Rest


@dataclass(frozen=True, repr=False, init=False)
class Chain(Codec):
    """Applies codecs one after the other, each to the signal that the one before left."""

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

    def encode(self, parts: Parts, seed: int) -> Parts:
        for codec in self.codecs:
            parts = codec.encode(parts, seed)
        return parts

    def decode(self, parts: Parts, seed: int) -> Parts:
        for codec in reversed(self.codecs):
            parts = codec.decode(parts, seed)
        return parts

    def pick(self, x: Tensor, rest: Rest, decay: float, out: Tensor) -> Tensor | Lazy:
        return self.codecs[0].pick(x, rest, decay, out)

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> Parts:
        parts = self.codecs[0].encode_lazy(x, seed)
        for codec in self.codecs[1:]:
            parts = codec.encode(parts, seed)
        return parts

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        for codec in reversed(self.codecs[1:]):
            parts = codec.decode(parts, seed)
        return self.codecs[0].decode_lazy(parts, seed)
