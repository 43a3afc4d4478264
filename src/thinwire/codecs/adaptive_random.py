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

UNIT = 2**32  # probability 1, in fixed point


@dataclass(frozen=True, repr=False)
class AdaptiveRandom(AtPositions):
    """Random sparsification, probabilities proportional to magnitudes (after Wangni et al., 2018).

    Keeps a fixed number of entries, by systematic sampling. Sends their values and positions.

    Examples:
        >>> import torch
        >>> from thinwire import AdaptiveRandom
        >>> x = torch.cat([torch.full((90,), 0.01), torch.full((10,), 1.0)])
        >>> codec = AdaptiveRandom(0.1)
        >>> (y,) = codec.decode(codec.encode((x,), seed=0), seed=0)
        >>> y.count_nonzero().item(), y[90:].count_nonzero().item()  # mostly the large entries
        (10, 9)
    """

    ratio: float | None = None  # of all entries; lower: fewer bytes; None: one entry
    unbiased: bool = False  # divide each kept entry by its probability

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
        return *self.encode_sparse(self._sampled(x, seed)), *below

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> Parts:
        return self.encode_sparse(self._sampled(materialize(x), seed))

    def _sampled(self, x: Tensor, seed: int) -> SparseTensor:
        flat = x.flatten().to(working(x.dtype))
        count, sizes = self.entries(flat.numel()), flat.abs().double()
        least = _certain(sizes, count)
        if least is None:  # all nonzero entries are kept; or some are not finite, which peers must see
            return top_k.largest(x, count)
        cumulative = (sizes / least).clamp_max_(1).mul_(UNIT).ceil_().long().cumsum(0)
        # Systematic sampling: `count` equidistant points on the cumulative probabilities select each entry with its
        # probability, and none twice, as the distance of the points is at least 1.
        step = int(cumulative[-1]) / count
        start = torch.rand(1, generator=torch.Generator().manual_seed(key_of(flat, seed)), dtype=torch.float64)
        points = ((torch.arange(count, dtype=torch.float64) + start) * step).long().to(flat.device)
        where = torch.searchsorted(cumulative, points, right=True).clamp_max_(flat.numel() - 1)
        values = flat[where].double()
        if self.unbiased:
            limit = torch.finfo(x.dtype).max
            values = torch.copysign(sizes[where].clamp_min(least), values).clamp_(-limit, limit)
        return SparseTensor(values.to(x.dtype), where, x)


def _certain(sizes: Tensor, count: int) -> float | None:
    """The magnitude from which on an entry is kept with probability 1, if `count` entries are kept on average.

    None if no more than `count` entries are nonzero, or if some are not finite.
    """
    total, above = float(sizes.sum()), 0
    if not isfinite(total) or int(sizes.count_nonzero()) <= count:
        return None
    least = total / count
    while (more := int((sizes >= least).sum())) > above:  # certain entries raise the probabilities of the others
        above = more
        if above >= count:  # the others are too small to change the sum
            return None
        least = float(sizes.masked_fill(sizes >= least, 0).sum()) / (count - above)
    return least
