from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Codec, Parts, PayloadError
from ..core.lazy import Lazy, materialize, outline
from ..core.precision import working
from ..kernels import positions
from ..kernels import selection as top_k
from ..kernels.bits import pack, packed_bytes, unpack
from ..kernels.sparse_tensor import SparseTensor
from .sparsifier import check_ratio, kept
from .validation import check_parts

ORDERS = ("index", "value", "magnitude")


class LeaderSparse(SparseTensor):
    """The scale of its layer at every sent position, in the order of the payload."""

    def __init__(self, scales: Tensor, counts: list[int], where: Tensor, like: Tensor) -> None:
        each = torch.tensor(counts, device=where.device)
        super().__init__(torch.repeat_interleave(scales.to(like.dtype), each), where, like)
        self.scales = scales

    def add_to(self, total: Tensor, weight: float | None = None) -> None:
        values = self.values.to(total.dtype)
        total.view(-1).index_add_(0, self.where, values if weight is None else values * weight)


@dataclass(frozen=True, repr=False)
class LeaderPositions(Codec):
    """The leader's message in `LeaderTopK`: positions of the largest entries of each layer, and one scale per layer.

    The decoded tensor has, at these positions, the root mean square of the layer's selected entries. Values are sent in
    another message, so this is no codec for gradients and has no notation.
    """

    ratio: float  # of a layer's entries; lower: fewer
    least: int = 10  # positions per layer, at least, if it has that many entries
    order: str = "index"  # within a layer: "index"; by "value", the lowest first; by "magnitude", the largest first
    sizes: tuple[int, ...] = ()  # of the layers, which follow one another; none given: all is one layer

    def __post_init__(self) -> None:
        check_ratio("LeaderPositions", self.ratio)
        if not (isinstance(self.least, int) and self.least > 0):
            raise ValueError(f"LeaderPositions takes a least of 1 position per layer or more, not {self.least!r}")
        if self.order not in ORDERS:
            raise ValueError(f"LeaderPositions are in the order of {', '.join(map(repr, ORDERS))}, not {self.order!r}")

    def layers(self, numel: int) -> tuple[int, ...]:
        return self.sizes or (numel,)

    def counts(self, numel: int) -> list[int]:
        """Number of positions of each layer."""
        return [min(n, max(self.least, kept(self.ratio, n))) for n in self.layers(numel)]

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return *self.encode_lazy(x, seed), *below

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> Parts:
        selected = x if isinstance(x, LeaderSparse) else self.select(materialize(x))
        return selected.scales, self._coded(selected.where, x.shape.numel()), outline(x)

    def decode(self, parts: Parts, seed: int) -> Parts:
        selected, below = self.decode_lazy(parts, seed)
        return materialize(selected), *below

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        scales, coded, like, *below = parts
        check_parts(like, scales, coded)
        counts = self.counts(like.numel())
        if scales.shape != (len(counts),) or not scales.is_floating_point():
            raise PayloadError(f"{tuple(scales.shape)} scales are not those of {len(counts)} layers")
        return LeaderSparse(scales, counts, self._where(coded, like.numel()), like), tuple(below)

    def select(self, x: Tensor) -> LeaderSparse:
        """The positions of a tensor's largest entries."""
        flat = x.flatten()
        where, scales, start = [], [], 0
        counts = self.counts(flat.numel())
        for layer, count in zip(torch.split(flat, list(self.layers(flat.numel()))), counts, strict=True):
            largest = top_k.largest(layer, count)
            where.append(start + largest.where[self._order(largest.values)])
            scales.append(root_mean_square(largest.values))
            start += layer.numel()
        return LeaderSparse(torch.stack(scales), counts, torch.cat(where), x)

    def _order(self, values: Tensor) -> Tensor:
        if self.order == "index":
            return torch.arange(len(values), device=values.device)
        return (values if self.order == "value" else -values.abs()).argsort(stable=True)

    def _coded(self, where: Tensor, numel: int) -> Tensor:
        """In index order, positions are coded as a set. In any other, each is packed separately, in few more bytes."""
        if self.order == "index":
            return positions.encode(where, numel)
        pieces, start = [], 0
        for size, within in zip(self.layers(numel), torch.split(where, self.counts(numel)), strict=True):
            pieces.append(pack(within - start, _width(size)))
            start += size
        return torch.cat(pieces)

    def _where(self, coded: Tensor, numel: int) -> Tensor:
        counts, sizes = self.counts(numel), self.layers(numel)
        if self.order == "index":
            return positions.decode(coded, sum(counts), numel)
        widths = [_width(size) for size in sizes]
        lengths = [packed_bytes(count, width) for count, width in zip(counts, widths, strict=True)]
        if coded.dtype != torch.uint8 or coded.numel() != sum(lengths):
            raise PayloadError(f"{coded.numel()} bytes cannot code {sum(counts)} positions of {numel} entries")
        where, start = [], 0
        for piece, count, width, size in zip(torch.split(coded, lengths), counts, widths, sizes, strict=True):
            within = unpack(piece, count, width).long()
            if count and int(within.max()) >= size:
                raise PayloadError(f"position {int(within.max())} is outside a layer of {size} entries")
            where.append(within + start)
            start += size
        indices = torch.cat(where)
        if bool((indices.sort().values.diff() == 0).any()):
            raise PayloadError("a position is in the payload twice")
        return indices


def root_mean_square(values: Tensor) -> Tensor:
    """In at least 32 bits; 0 for an empty tensor."""
    norm = torch.linalg.vector_norm(values, dtype=torch.float64)  # in 64 bits, squares do not overflow
    mean: Tensor = norm / max(1, len(values)) ** 0.5
    return mean.to(working(values.dtype))


def _width(size: int) -> int:
    """The bits of a position in `size` entries."""
    return (size - 1).bit_length() if size else 0
