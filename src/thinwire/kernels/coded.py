"""Tensors that are told by codes of few bits and a scale for each block, not written out until it is known where."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import PayloadError
from ..lazy import Lazy, Rest
from .bits import packed_bytes, unpack
from .compiled import loops_for, vector
from .threads import spread


class Meaning(NamedTuple):
    """What a code stands for: (factor * code + offset) * scale."""

    bits: int
    factor: int
    offset: int
    block: int | None = None  # entries that share a scale; all, if it is not told

    @property
    def most(self) -> int:
        """The largest size that is told, in scales."""
        return max(abs(self.offset), abs(self.factor * ((1 << self.bits) - 1) + self.offset))


class Coded(Lazy):
    """The tensor that codes stand for, in the shape and type of another; checked to be one."""

    def __init__(self, packed: Tensor, scale: Tensor, meaning: Meaning, like: Tensor) -> None:
        size, wide = like.numel(), torch.promote_types(like.dtype, torch.float32)
        blocks = -(-size // meaning.block) if meaning.block else 1
        if packed.dtype != torch.uint8 or packed.shape != (packed_bytes(size, meaning.bits),):
            raise PayloadError(f"{packed.dtype} {tuple(packed.shape)} cannot be {size} codes of {meaning.bits} bits")
        if scale.dtype != wide or scale.numel() != blocks or scale.device != packed.device:
            raise PayloadError(f"{scale.dtype} {tuple(scale.shape)} cannot be the {wide} scales of {blocks} blocks")
        self.packed, self.scale, self.meaning = packed, scale.reshape(-1), meaning
        self.shape, self.dtype, self.device = like.shape, like.dtype, packed.device

    def copy_to(self, target: Tensor) -> None:
        loops = self._loops(target)
        if loops is None:
            target.copy_(self._plain().view(target.shape))
            return
        to, codes = vector(target), self._codes()
        spread(lambda start, stop: loops.write_coded(*codes, start, stop, to), len(to))

    def add_to(self, total: Tensor, weight: float | None = None) -> None:
        """Add it, times a weight if one is given, to a contiguous tensor of its shape."""
        loops = self._loops(total)
        if loops is None:
            added = self._plain().to(total.dtype).view(total.shape)
            total.add_(added if weight is None else added * weight)
            return
        to, codes, times = vector(total), self._codes(), np.float32(1 if weight is None else weight)
        spread(lambda start, stop: loops.add_coded(*codes, start, stop, times, to), len(to))

    def rest_of(self, total: Tensor) -> Rest:
        """What it leaves of a total: taken away when the next message is added, in one pass."""
        return Rest(total, self) if total.dtype == self.dtype else super().rest_of(total)

    def add_rest(self, x: Tensor, decay: float, total: Tensor, out: Tensor) -> None:
        loops = self._loops(x, total, out)
        if loops is None:
            torch.sub(total, self._plain().view(total.shape), out=out)
            if decay != 1:
                out.mul_(decay)
            out.add_(x)
            return
        others = vector(x), np.float32(decay), vector(total), vector(out)
        codes = self._codes()
        spread(lambda start, stop: loops.add_rest_of_coded(*codes, start, stop, *others), out.numel())

    def bound(self) -> float:
        """What no entry exceeds in size; NaN or infinity if there may be one."""
        return float((self.scale.abs().amax() * self.meaning.most).to(self.dtype)) if self.scale.numel() else 0.0

    def _loops(self, *others: Tensor) -> Any:
        if self.dtype != torch.float32 or self.meaning.bits not in (1, 2, 4, 8):
            return None
        return loops_for(self.scale, *others) and loops_for(self.packed, dtype=torch.uint8)

    def _codes(self) -> tuple[Any, ...]:
        bits, factor, offset, block = self.meaning
        block = block or max(1, self.shape.numel())
        return vector(self.packed), bits, np.float32(factor), np.float32(offset), vector(self.scale), block

    def _plain(self) -> Tensor:
        bits, factor, offset, block = self.meaning
        size = self.shape.numel()
        steps = unpack(self.packed, size, bits).to(self.scale.dtype).mul_(factor).add_(offset)
        if block is None:
            steps.mul_(self.scale)
        else:
            steps = pad(steps, (0, -size % block)) if size % block else steps
            steps = steps.view(-1, block).mul_(self.scale[:, None]).view(-1)[:size]
        return steps.to(self.dtype).view(self.shape)
