from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Codec, Parts
from ..core.bounds import Bounds, projection, unbiased
from ..core.lazy import outline
from ..core.precision import working
from .sparsifier import check_ratio, kept, scattered


@dataclass(frozen=True, repr=False)
class RandomK(Codec):
    """Random-k sparsification: keeps entries sampled with a seed that all ranks share.

    Only values are sent, no positions, and the values of all ranks can be all-reduced.

    Examples:
        >>> import torch
        >>> from thinwire import RandomK
        >>> codec = RandomK(0.25)
        >>> first, outline = codec.encode((torch.full((8,), 1.0),), seed=7)  # on one rank
        >>> second, _ = codec.encode((torch.full((8,), 2.0),), seed=7)  # on another: the same positions
        >>> codec.decode((first + second, outline), seed=7)[0].unique(return_counts=True)
        (tensor([0., 3.]), tensor([6, 2]))
    """

    ratio: float  # of all entries; lower: fewer bytes
    unbiased: bool = False  # divide each kept entry by its probability

    linear = True

    def __post_init__(self) -> None:
        check_ratio("RandomK", self.ratio)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return x.flatten()[self._sampled(x, seed)[0]], outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        values, like, *below = parts
        sampled, every = (part.to(values.device) for part in self._sampled(like, seed))
        if self.unbiased and values.shape == every.shape:
            limit = torch.finfo(like.dtype).max
            values = (values.to(working(like.dtype)) * every).clamp_(-limit, limit)
        return scattered(values, sampled, like).dense(), *below

    def entries(self, size: int) -> int:
        return kept(self.ratio, size)

    def bounds(self, size: int) -> Bounds:
        every = float(-(-size // self.entries(size)))  # the longest stretch
        return unbiased(every) if self.unbiased else projection(every)

    def _sampled(self, like: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """The positions, and the number of entries that each is sampled from."""
        # One entry from each of k equal stretches: as good as k of n without replacement, in O(k) instead of O(n).
        count = kept(self.ratio, like.numel())
        edges = torch.arange(count + 1) * like.numel() // max(count, 1)
        lengths = edges.diff()
        uniform = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        sampled = edges[:-1] + (uniform * lengths).long()
        return (sampled, lengths) if like.is_meta else (sampled.to(like.device), lengths)
