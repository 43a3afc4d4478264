from dataclasses import dataclass

from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import Bounds
from ..core.lazy import DeferredDifference, Lazy, materialize


@dataclass(frozen=True, repr=False)
class Shrink(Codec):
    """Scales the output of an unbiased codec so that it becomes a contraction, as error feedback needs it.

    Divides the decoded tensor by the bound on its expected growth, which depends on the tensor's size only, so nothing
    more is sent. `ErrorFeedback` puts it around codecs that need it.

    Examples:
        >>> from thinwire import Dither, Shrink
        >>> Dither(1).delta(100) is None  # unbiased, but no contraction
        True
        >>> Shrink(Dither(1)).delta(100)  # 1 - 1 / delta of the squared norm is the largest expected error
        10.0
    """

    codec: Codec

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec):
            raise ValueError(f"Shrink takes a codec, not {self.codec!r}")
        if self.codec.bounds(2).least is None:
            raise ValueError(f"the expected growth of {self.codec!r} is not known, so Shrink cannot divide by it")

    @property
    def linear(self) -> bool:  # type: ignore[override]  # a property where others have a constant
        return self.codec.linear

    @property
    def variable(self) -> bool:  # type: ignore[override]
        return self.codec.variable

    @property
    def numeric(self) -> bool:  # type: ignore[override]
        return self.codec.numeric

    @property
    def takes_codes(self) -> bool:  # type: ignore[override]
        return self.codec.takes_codes

    def bounds(self, size: int) -> Bounds:
        return self.codec.bounds(size).shrunk

    def entries(self, size: int) -> int:
        return self.codec.entries(size)

    def encode(self, parts: Parts, seed: int) -> Parts:
        return self.codec.encode(parts, seed)

    def decode(self, parts: Parts, seed: int) -> Parts:
        x, below = self.decode_lazy(parts, seed)
        return materialize(x), *below

    def pick(self, x: Tensor, rest: DeferredDifference, decay: float, out: Tensor) -> Tensor | Lazy:
        return self.codec.pick(x, rest, decay, out)

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> Parts:
        return self.codec.encode_lazy(x, seed)

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        x, below = self.codec.decode_lazy(parts, seed)
        known = self.codec.bounds(max(1, x.shape.numel()))
        if known.least is None:
            raise ValueError(
                f"the expected growth of {self.codec!r} is not known for tensors of {x.shape.numel()} entries"
            )
        factor = 1 / known.most
        return x * factor if isinstance(x, Tensor) else x.times(factor), below
