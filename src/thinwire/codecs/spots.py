from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Codec, Parts, PayloadError
from ..kernels import positions, top_k
from ..kernels.sparse import Sparse
from ..lazy import Lazy, dense, outline
from .sparse import check_ratio, kept

ORDERS = ("value", "magnitude", "index")


@dataclass(frozen=True, repr=False)
class Spots(Codec):
    """Tells where the largest entries of each layer are, in an order, and how large they are on the whole.

    What is decoded has, at these places, the root mean square of the layer's: the values are for others to say.
    """

    ratio: float  # of a layer's entries
    least: int = 10  # entries of a layer
    order: str = "value"  # by "value", from the lowest to the highest of each layer; by "magnitude"; or by "index"
    sizes: tuple[int, ...] = ()  # of the layers, one after the other; none: it is one layer

    def __post_init__(self) -> None:
        check_ratio("Spots", self.ratio)
        if self.order not in ORDERS:
            raise ValueError(f"Spots are in the order of {', '.join(map(repr, ORDERS))}, not {self.order!r}")

    def counts(self, numel: int) -> list[int]:
        return [min(n, max(self.least, kept(self.ratio, n))) for n in self.sizes or (numel,)]

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        flat = x.flatten()
        sizes, start = self.sizes or (flat.numel(),), 0
        where, turns, scales = [], [], []
        for layer, count in zip(torch.split(flat, sizes), self.counts(flat.numel()), strict=True):
            largest = top_k.largest(layer, count)
            key = largest.values if self.order == "value" else -largest.values.abs()
            where.append(largest.where + start)
            turns.append(key.argsort(stable=True) if self.order != "index" else torch.arange(count))
            scales.append(largest.values.float().square().mean().sqrt() if count else torch.zeros(()))
            start += layer.numel()
        coded = positions.encode(torch.cat(where), flat.numel())
        order = () if self.order == "index" else (torch.cat(turns).to(torch.int32),)
        return torch.stack(scales), coded, *order, outline(x), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        sparse, below = self.decode_lazy(parts, seed)
        return dense(sparse), *below

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        scales, coded, *rest = parts
        turns = None if self.order == "index" else rest.pop(0)
        like, *below = rest
        counts = self.counts(like.numel())
        if scales.shape != (len(counts),):
            raise PayloadError(f"{tuple(scales.shape)} scales are not those of {len(counts)} layers")
        where = positions.decode(coded, sum(counts), like.numel())
        if turns is not None:
            offsets = torch.repeat_interleave(torch.tensor([0, *counts[:-1]]).cumsum(0), torch.tensor(counts))
            where = where[turns.long() + offsets]
        values = torch.repeat_interleave(scales.to(like.dtype), torch.tensor(counts))
        return Sparse(values, where, like), tuple(below)
