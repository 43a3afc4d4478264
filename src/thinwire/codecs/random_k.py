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
    """Keeps entries drawn with the shared seed, so that no positions travel and the peers' values can be added."""

    ratio: float  # of all entries; lower: less is sent
    unbiased: bool = False  # what is kept is divided by its chance, so that it is right on average

    linear = True

    def __post_init__(self) -> None:
        check_ratio("RandomK", self.ratio)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return x.flatten()[self._drawn(x, seed)[0]], outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        values, like, *below = parts
        drawn, every = (told.to(values.device) for told in self._drawn(like, seed))
        if self.unbiased and values.shape == every.shape:
            limit = torch.finfo(like.dtype).max
            values = (values.to(working(like.dtype)) * every).clamp_(-limit, limit)
        return scattered(values, drawn, like).dense(), *below

    def entries(self, size: int) -> int:
        return kept(self.ratio, size)

    def bounds(self, size: int) -> Bounds:
        every = float(-(-size // self.entries(size)))  # the longest stretch
        return unbiased(every) if self.unbiased else projection(every)

    def _drawn(self, like: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Which, and of how many entries each is drawn."""
        # One entry from each of k equal stretches: as good as k of n without replacement, and costs k instead of n.
        count = kept(self.ratio, like.numel())
        edges = torch.arange(count + 1) * like.numel() // max(count, 1)
        lengths = edges.diff()
        draw = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        drawn = edges[:-1] + (draw * lengths).long()
        return (drawn, lengths) if like.is_meta else (drawn.to(like.device), lengths)
