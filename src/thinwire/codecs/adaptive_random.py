from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from ..core import Parts
from ..core.bounds import Bounds, projection, unbiased
from ..core.lazy import Lazy, materialize
from ..core.precision import working
from ..kernels import selection as top_k
from ..kernels.sparse_tensor import SparseTensor
from .sampling import key_of
from .sparsifier import AtPositions, check_ratio, kept

UNIT = 2**32  # what is certain, in whole numbers


@dataclass(frozen=True, repr=False)
class AdaptiveRandom(AtPositions):
    """Keeps entries by chance, the larger the likelier."""

    ratio: float | None = None  # of all entries; lower: less is sent; None: one
    unbiased: bool = False  # what is kept is divided by its chance, so that it is right on average

    def __post_init__(self) -> None:
        if self.ratio is not None:
            check_ratio("AdaptiveRandom", self.ratio)

    def entries(self, size: int) -> int:
        return kept(self.ratio or 0.0, size)

    def bounds(self, size: int) -> Bounds:
        every = size / self.entries(size)
        return unbiased(every) if self.unbiased else projection(every)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return *self.encode_sparse(self._drawn(x, seed)), *below

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> Parts:
        return self.encode_sparse(self._drawn(materialize(x), seed))

    def _drawn(self, x: Tensor, seed: int) -> SparseTensor:
        flat = x.flatten().to(working(x.dtype))
        count, sizes = self.entries(flat.numel()), flat.abs().double()
        least = _certain(sizes, count)
        if least is None:  # all that is not zero is kept; or not all are finite, which has to be heard
            return top_k.largest(x, count)
        chances = (sizes / least).clamp_max_(1).mul_(UNIT).ceil_().long().cumsum(0)
        # A ruler with `count` marks is laid along the chances, and hits each entry as often as that is likely; none
        # twice, as the marks are further apart than what is certain is long.
        step = int(chances[-1]) / count
        start = torch.rand(1, generator=torch.Generator().manual_seed(key_of(flat, seed)), dtype=torch.float64)
        marks = ((torch.arange(count, dtype=torch.float64) + start) * step).long().to(flat.device)
        where = torch.searchsorted(chances, marks, right=True).clamp_max_(flat.numel() - 1)
        values = flat[where].double()
        if self.unbiased:
            limit = torch.finfo(x.dtype).max
            values = torch.copysign(sizes[where].clamp_min(least), values).clamp_(-limit, limit)
        return SparseTensor(values.to(x.dtype), where, x)


def _certain(sizes: Tensor, count: int) -> float | None:
    """The size from which on an entry is certainly kept, if so many are kept on average and chances go by sizes.

    None if there are not as many that are not zero, or if some are not finite.
    """
    total, above = float(sizes.sum()), 0
    if not isfinite(total) or int(sizes.count_nonzero()) <= count:
        return None
    least = total / count
    while (more := int((sizes >= least).sum())) > above:  # what is certain leaves the others so much the likelier
        above = more
        if above >= count:  # beside these, all others together are too small to be added to them
            return None
        least = float(sizes.masked_fill(sizes >= least, 0).sum()) / (count - above)
    return least
