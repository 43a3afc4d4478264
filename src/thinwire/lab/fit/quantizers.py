"""The quantizers whose symbols are coded."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import Tensor

from thinwire import MiniFloat, Quantize
from thinwire.extend import Codec


class Quantized(NamedTuple):
    """What a quantizer makes of a tensor."""

    symbols: Tensor  # one an entry
    packed: Tensor  # the same, as they travel: bytes, some of which hold two symbols
    side: int  # bytes of scales, which go beside


@dataclass(frozen=True)
class Form:
    name: str
    codec: Codec
    grid: str  # what laws are told that symbols stand for
    bits: int

    def quantize(self, x: Tensor) -> Quantized:
        packed, *beside = self.codec.encode((x,), 0)
        side = sum(part.numel() * part.element_size() for part in beside if not part.is_meta)
        # The first half of the symbols is in the lower bits of the bytes, the second in the upper ones.
        symbols = packed if self.bits == 8 else torch.cat([packed & 15, packed >> 4])[: x.numel()]
        return Quantized(symbols, packed, side)


FLOATS = ("fp8-152", "fp8-143", "fp4-121")
INTEGERS = {"int8": 8, "int4": 4}
FORMS = (*FLOATS, *INTEGERS)
SCALED = ("fp4-121", *INTEGERS)  # always: of gradients as they are, floats of 4 bits leave only zeros


def form(name: str, scaled: bool = False) -> Form:
    """A quantizer by its name; floats of 8 bits are scaled if that is asked for."""
    if name in FLOATS:
        scaled = scaled or name in SCALED
        return Form(name + ", scaled" * scaled, MiniFloat(name, scaled), name, 8 if name.startswith("fp8") else 4)
    if name in INTEGERS:
        return Form(name, Quantize(INTEGERS[name]), "integers", INTEGERS[name])
    nearest = get_close_matches(name, FORMS, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise ValueError(f"there is no quantizer {name!r}{hint}; there are {', '.join(FORMS)}")
