from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Codec, Parts
from ..lazy import outline
from .sparse import check_ratio, kept, scattered


@dataclass(frozen=True, repr=False)
class RandomK(Codec):
    """Keeps entries drawn with the shared seed, so that no positions travel and the peers' values can be added."""

    ratio: float  # of all entries; lower: less is sent

    linear = True

    def __post_init__(self) -> None:
        check_ratio("RandomK", self.ratio)

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return x.flatten()[self._drawn(x, seed)], outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        values, like, *below = parts
        return scattered(values, self._drawn(like, seed).to(values.device), like).dense(), *below

    def _drawn(self, like: Tensor, seed: int) -> Tensor:
        # One entry from each of k equal stretches: as good as k of n without replacement, and costs k instead of n.
        count = kept(self.ratio, like.numel())
        edges = torch.arange(count + 1) * like.numel() // max(count, 1)
        lengths = edges.diff()
        draw = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        drawn = edges[:-1] + (draw * lengths).long()
        return drawn if like.is_meta else drawn.to(like.device)
