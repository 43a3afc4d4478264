from dataclasses import dataclass

import numpy as np
import torch
import zstandard
from torch import Tensor

from ..core import Codec, Parts, PayloadError
from ..lazy import outline

STORED, SQUEEZED = 0, 1
LEVEL = 1  # of zstandard; higher levels look for repetition, which gradients do not have


@dataclass(frozen=True, repr=False)
class Entropy(Codec):
    """Squeezes every part without loss, and stores a part as it is where that is smaller."""

    variable = True
    numeric = False
    takes_codes = True

    def encode(self, parts: Parts, seed: int) -> Parts:
        return tuple(half for part in parts for half in _squeeze(part))

    def decode(self, parts: Parts, seed: int) -> Parts:
        left = list(parts)
        expanded = []
        while left:
            part = left.pop(0)
            expanded.append(part if part.is_meta else _expand(part, left.pop(0)))
        return tuple(expanded)


def _squeeze(part: Tensor) -> Parts:
    if part.is_meta:
        return (part,)
    raw = part.contiguous().view(-1).view(torch.uint8).cpu()
    # The first bytes of all elements, then the second ones, ...: exponents resemble each other, mantissas do not.
    planes = raw.view(-1, part.element_size()).t().contiguous().numpy().tobytes()
    squeezed = zstandard.ZstdCompressor(level=LEVEL).compress(planes)
    flag, data = (SQUEEZED, squeezed) if len(squeezed) < len(planes) else (STORED, planes)
    return _as_tensor(bytes([flag]) + data).to(part.device), outline(part)


def _expand(part: Tensor, like: Tensor) -> Tensor:
    if not (like.is_meta and part.dtype == torch.uint8 and part.numel() > 0):
        raise PayloadError("a squeezed part needs a flag and the outline of what it holds")
    size = like.numel() * like.element_size()
    flag, data = int(part[0]), part[1:].cpu().numpy().tobytes()
    if flag == SQUEEZED:
        try:
            if zstandard.get_frame_parameters(data).content_size != size:
                raise PayloadError(f"a squeezed part does not declare the {size} bytes that its outline needs")
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise PayloadError(f"a squeezed part cannot be expanded: {error}") from None
    elif flag != STORED:
        raise PayloadError(f"a squeezed part has the unknown flag {flag}")
    if len(data) != size:
        raise PayloadError(f"a squeezed part holds {len(data)} bytes, not the {size} of its outline")
    planes = _as_tensor(data).view(like.element_size(), -1)
    return planes.t().contiguous().view(-1).view(like.dtype).view(like.shape).to(part.device)


def _as_tensor(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
