"""The quantizers whose symbols are entropy-coded."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import Tensor

from thinwire import MiniFloat, Quantize
from thinwire.extend import Codec


class Quantized(NamedTuple):
    """A quantized tensor."""

    symbols: Tensor  # one per entry
    packed: Tensor  # the same as on the wire: in 4-bit forms, two symbols per byte
    side: int  # bytes of the scales, which are sent in addition


@dataclass(frozen=True)
class Form:
    name: str
    codec: Codec
    grid: str  # what the symbols stand for: the `grid` of an entropy model
    bits: int

    def quantize(self, x: Tensor) -> Quantized:
        packed, *scales = self.codec.encode((x,), 0)
        side = sum(part.numel() * part.element_size() for part in scales if not part.is_meta)
        # The first half of the symbols is in the lower bits of the bytes, the second in the upper ones.
        symbols = packed if self.bits == 8 else torch.cat([packed & 15, packed >> 4])[: x.numel()]
        return Quantized(symbols, packed, side)


FLOATS = ("fp8-152", "fp8-143", "fp4-121")
INTEGERS = {"int8": 8, "int4": 4}
FORMS = (*FLOATS, *INTEGERS)
SCALED = ("fp4-121", *INTEGERS)  # always scaled: unscaled gradients would all be 0 as 4-bit floats


def form(name: str, scaled: bool = False) -> Form:
    """The quantizer with a name; `scaled` scales 8-bit floats per layer."""
    if name in FLOATS:
        scaled = scaled or name in SCALED
        return Form(name + ", scaled" * scaled, MiniFloat(name, scaled), name, 8 if name.startswith("fp8") else 4)
    if name in INTEGERS:
        return Form(name, Quantize(INTEGERS[name]), "integers", INTEGERS[name])
    nearest = get_close_matches(name, FORMS, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise ValueError(f"unknown quantizer {name!r}{hint}; known: {', '.join(FORMS)}")
