"""Quantized tensors, given by packed codes and a scale per block, and materialized where they are needed."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import PayloadError
from ..core.lazy import DeferredDifference, Lazy, outline
from .bits import packed_bytes, unpack
from .compiled import loops_for, vector
from .threads import spread

WIDTHS = (1, 2, 4, 8)  # bits of a code that loops read


class Uniform(NamedTuple):
    """Uniform levels: a code stands for (factor * code + offset) * scale."""

    bits: int
    factor: int
    offset: int
    block: int | None = None  # entries that share a scale; None: all

    @property
    def most(self) -> float:
        """The largest magnitude, in units of the scale."""
        return max(abs(self.offset), abs(self.factor * ((1 << self.bits) - 1) + self.offset))

    def numbers(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        """The numbers that codes stand for, in units of the scale."""
        return codes.to(dtype).mul_(self.factor).add_(self.offset)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the loops whose names end in `kind`."""
        return np.float32(self.factor), np.float32(self.offset)

    @property
    def kind(self) -> str:
        return "uniform"


class Levels(NamedTuple):
    """Levels of a table: a code stands for table[code] * scale; the table has an entry for every code."""

    bits: int
    table: Tensor
    block: int | None = None

    @property
    def most(self) -> float:
        return float(self.table.abs().nan_to_num(0).amax())

    def numbers(self, codes: Tensor, dtype: torch.dtype) -> Tensor:
        return self.table.to(codes.device, dtype)[codes.long()]

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (vector(self.table.to(torch.float32)),)

    @property
    def kind(self) -> str:
        return "levels"


class QuantizedTensor(Lazy):
    """The tensor that codes stand for, with the shape and type of `like`; checks that sizes and types match."""

    def __init__(self, packed: Tensor, scale: Tensor, levels: Uniform | Levels, like: Tensor) -> None:
        size, wide = like.numel(), torch.promote_types(like.dtype, torch.float32)
        blocks = -(-size // levels.block) if levels.block else 1
        if packed.dtype != torch.uint8 or packed.shape != (packed_bytes(size, levels.bits),):
            raise PayloadError(f"{packed.dtype} {tuple(packed.shape)} cannot be {size} codes of {levels.bits} bits")
        if scale.dtype != wide or scale.numel() != blocks or scale.device != packed.device:
            raise PayloadError(f"{scale.dtype} {tuple(scale.shape)} cannot be the {wide} scales of {blocks} blocks")
        self.packed, self.scale, self.levels = packed, scale.reshape(-1), levels
        self.shape, self.dtype, self.device = like.shape, like.dtype, packed.device

    def copy_to(self, target: Tensor) -> None:
        loops = self._loops(target)
        if loops is None:
            target.copy_(self._plain().view(target.shape))
            return
        to, codes, write = vector(target), self._codes(), getattr(loops, f"write_{self.levels.kind}")
        spread(lambda start, stop: write(*codes, start, stop, to), len(to))

    def add_to(self, total: Tensor, weight: float | None = None) -> None:
        """Add the tensor, times a weight if one is given, to a contiguous tensor of its shape."""
        loops = self._loops(total)
        if loops is None:
            added = self._plain().to(total.dtype).view(total.shape)
            total.add_(added if weight is None else added * weight)
            return
        to, codes, times = vector(total), self._codes(), np.float32(1 if weight is None else weight)
        add = getattr(loops, f"add_{self.levels.kind}")
        spread(lambda start, stop: add(*codes, start, stop, times, to), len(to))

    def rest_of(self, total: Tensor) -> DeferredDifference:
        """The residual total - self, computed when the next tensor is added to it, in one pass."""
        return DeferredDifference(total, self) if total.dtype == self.dtype else super().rest_of(total)

    def add_rest(self, x: Tensor, decay: float, total: Tensor, out: Tensor) -> None:
        loops = self._loops(x, total, out)
        if loops is None:
            torch.sub(total, self._plain().view(total.shape), out=out)
            if decay != 1:
                out.mul_(decay)
            out.add_(x)
            return
        others = vector(x), np.float32(decay), vector(total), vector(out)
        codes, add_rest = self._codes(), getattr(loops, f"add_rest_of_{self.levels.kind}")
        spread(lambda start, stop: add_rest(*codes, start, stop, *others), out.numel())

    def times(self, factor: float) -> "QuantizedTensor":
        return QuantizedTensor(self.packed, self.scale * factor, self.levels, outline(self))

    def bound(self) -> float:
        """An upper bound of magnitudes; NaN or infinity if an entry may be."""
        return float((self.scale.abs().amax() * self.levels.most).to(self.dtype)) if self.scale.numel() else 0.0

    def _loops(self, *others: Tensor) -> Any:
        if self.dtype != torch.float32:
            return None
        return loops_for(self.scale, *others) and loops_for(self.packed, dtype=torch.uint8)

    def _codes(self) -> tuple[Any, ...]:
        size, bits, packed = self.shape.numel(), self.levels.bits, self.packed
        if bits not in WIDTHS:  # loops do not read this width: one byte per code
            packed, bits = unpack(packed, size, bits), 8
        return vector(packed), bits, *self.levels.arguments, vector(self.scale), self.levels.block or max(1, size)

    def _plain(self) -> Tensor:
        size, block = self.shape.numel(), self.levels.block
        steps = self.levels.numbers(unpack(self.packed, size, self.levels.bits), self.scale.dtype)
        if block is None:
            steps.mul_(self.scale)
        else:
            steps = pad(steps, (0, -size % block)) if size % block else steps
            steps = steps.view(-1, block).mul_(self.scale[:, None]).view(-1)[:size]
        if self.dtype != self.scale.dtype:
            limit = torch.finfo(self.dtype).max  # rounding up may have exceeded it
            steps = steps.clamp_(-limit, limit)
        return steps.to(self.dtype).view(self.shape)
