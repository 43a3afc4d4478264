from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core import Codec, Parts, PayloadError
from ..core.bounds import LOSSLESS, Bounds
from ..core.lazy import outline
from ..entropy import Coder, Model
from ..entropy.block import compress, decompress
from ..kernels.bits import bytes_of

STORED, PLANES, ELEMENTS = 0, 2, 3  # how a part is split into rows of symbols; 1 was a zstandard frame


@dataclass(frozen=True, repr=False)
class Entropy(Codec):
    """Lossless entropy coding (Huffman or rANS) of every part of a payload, close to the entropy of its symbols.

    Examples:
        >>> import torch
        >>> from thinwire import Chain, Entropy, Quantize
        >>> x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
        >>> for codec in (Quantize(4), Chain(Quantize(4), Entropy())):
        ...     print(codec, sum(part.nbytes for part in codec.encode((x,), seed=0) if not part.is_meta))
        Quantize(4) 5080
        Chain(Quantize(4), Entropy()) 4040
    """

    model: Model | None = None  # of the symbol frequencies; None: Histogram or GenNorm, whichever takes fewer bytes
    coder: Coder | None = None  # None: Huffman, or rANS where that saves 2 % or more

    variable = True
    numeric = False
    takes_codes = True

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, Model):
            raise ValueError(f"Entropy takes a model such as Histogram() or GenNorm(), not {self.model!r}")
        if self.coder is not None and not isinstance(self.coder, Coder):
            raise ValueError(f"Entropy takes a coder, Huffman() or Rans(), not {self.coder!r}")

    def bounds(self, size: int) -> Bounds:
        return LOSSLESS

    def encode(self, parts: Parts, seed: int) -> Parts:
        return tuple(half for part in parts for half in self._compress(part))

    def decode(self, parts: Parts, seed: int) -> Parts:
        left = list(parts)
        decompressed = []
        while left:
            part = left.pop(0)
            decompressed.append(part if part.is_meta else _decompress(part, left.pop(0) if left else None))
        return tuple(decompressed)

    def _compress(self, part: Tensor) -> Parts:
        if part.is_meta:
            return (part,)
        raw = bytes_of(part).cpu().numpy()
        width = part.element_size()
        # The first bytes of all elements, then the second ones, ...: exponents resemble each other, mantissas do not.
        planes = np.ascontiguousarray(raw.reshape(-1, width).T)
        forms = [bytes([PLANES]) + b"".join(compress(plane, self.model, self.coder) for plane in planes)]
        if width == 2 and not part.is_floating_point():
            forms.append(bytes([ELEMENTS]) + compress(raw.view(np.uint16), self.model, self.coder))
        shortest = min(forms, key=len)
        coded = shortest if len(shortest) <= raw.nbytes else bytes([STORED]) + raw.tobytes()
        return torch.frombuffer(bytearray(coded), dtype=torch.uint8).to(part.device), outline(part)


def _decompress(part: Tensor, like: Tensor | None) -> Tensor:
    if like is None or not (like.is_meta and part.dtype == torch.uint8 and part.numel() > 0):
        raise PayloadError("an entropy-coded part needs a flag and the outline of what it holds")
    data, width, count = part.cpu().numpy(), like.element_size(), like.numel()
    flag, used = int(data[0]), 1
    if flag == STORED:
        raw, used = data[1:], len(data)
    elif flag == PLANES:
        planes = []
        for _ in range(width):
            plane, more = decompress(data[used:], count, np.uint8)
            planes.append(plane)
            used += more
        raw = np.ascontiguousarray(np.array(planes).T).reshape(-1)
    elif flag == ELEMENTS and width == 2:
        symbols, more = decompress(data[used:], count, np.uint16)
        raw, used = symbols.view(np.uint8), used + more
    else:
        raise PayloadError(f"an entropy-coded part of elements of {width} bytes has the unknown flag {flag}")
    if used != len(data) or raw.nbytes != count * width:
        raise PayloadError(
            f"an entropy-coded part of {len(data)} bytes does not hold the {count * width} of its outline"
        )
    restored = torch.empty(count, dtype=like.dtype)
    restored.view(torch.uint8).numpy()[:] = raw
    return restored.view(like.shape).to(part.device)
