from dataclasses import dataclass

import torch

from ..core import Codec, Parts, outline

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, repr=False)
class Cast(Codec):
    """Sends 16-bit floats. Values beyond the range are sent as its limit, never as infinity."""

    dtype: str  # "float16": finer; "bfloat16": wider range

    linear = True

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"Cast takes {' or '.join(map(repr, DTYPES))}, not {self.dtype!r}")

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        narrow = DTYPES[self.dtype]
        limit = min(torch.finfo(narrow).max, torch.finfo(x.dtype).max)
        return x.clamp(-limit, limit).to(narrow), outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        signal, like, *below = parts
        return signal.to(like.dtype), *below
