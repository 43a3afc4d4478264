"""Sparse tensors: the values of the nonzero entries, and their positions."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..core.lazy import DeferredDifference, Lazy, outline
from .compiled import loops_for, vector
from .threads import spread


class SparseTensor(Lazy):
    """A tensor with these values at these increasing positions, and zeros elsewhere."""

    sparse = True

    def __init__(self, values: Tensor, where: Tensor, like: Tensor) -> None:
        self.values, self.where = values, where
        self.shape, self.dtype, self.device = like.shape, like.dtype, values.device

    def copy_to(self, target: Tensor) -> None:
        if not target.is_contiguous():
            target.copy_(self.dense().view(target.shape))
            return
        target.zero_().view(-1).index_copy_(0, self.where, self.values.to(target.dtype))

    def add_to(self, total: Tensor, weight: float | None = None) -> None:
        values = self.values.to(total.dtype)
        loops = loops_for(total, values)
        if loops is None:
            total.view(-1).index_add_(0, self.where, values if weight is None else values * weight)
        else:
            if len(values) and not 0 <= int(self.where[0]) <= int(self.where[-1]) < total.numel():
                raise IndexError(f"positions from {self.where[0]} to {self.where[-1]} in {total.numel()} entries")
            to, where, added = vector(total), vector(self.where), vector(values)
            times = np.float32(1 if weight is None else weight)
            # No position occurs twice, so threads do not write to the same entry.
            spread(lambda i, end: loops.add_to(to, where[i:end], added[i:end], times), len(where))

    def rest_of(self, total: Tensor) -> DeferredDifference:
        self.add_to(total, -1.0)
        return DeferredDifference(total)

    def zero_where(self, target: Tensor) -> None:
        target.view(-1).index_fill_(0, self.where[self.values != 0], 0)

    def pieces(self, sizes: list[int]) -> "Sequence[Tensor | Lazy]":
        ends = torch.tensor(sizes, device=self.where.device).cumsum(0)
        cuts = [0, *torch.searchsorted(self.where, ends).tolist()]
        starts = [0, *ends.tolist()]
        return [
            SparseTensor(self.values[a:b], self.where[a:b] - start, self.values.new_empty(size, device="meta"))
            for a, b, start, size in zip(cuts, cuts[1:], starts, sizes, strict=False)
        ]

    def times(self, factor: float) -> "SparseTensor":
        return SparseTensor(self.values * factor, self.where, outline(self))

    def bound(self) -> float:
        # A sum in 64 bits does not overflow, and is NaN or infinite if a value is.
        return float(self.values.abs().sum(dtype=torch.float64))
