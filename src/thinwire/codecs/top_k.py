from dataclasses import dataclass

from torch import Tensor

from ..core import Parts
from ..kernels import positions, top_k
from ..kernels.sparse import Sparse
from ..lazy import Lazy, Rest, outline
from .sparse import SparseCodec, check_ratio, kept, scattered


@dataclass(frozen=True, repr=False)
class TopK(SparseCodec):
    """Keeps the largest entries by magnitude; of equal ones, the first."""

    ratio: float  # of all entries; lower: less is sent

    def __post_init__(self) -> None:
        check_ratio("TopK", self.ratio)

    def keep(self, x: Tensor) -> Sparse:
        return top_k.largest(x, kept(self.ratio, x.numel()))

    def is_kept(self, x: Sparse) -> bool:
        return x.where.numel() == kept(self.ratio, x.shape.numel())

    def pick(self, x: Tensor, rest: Rest, decay: float, out: Tensor) -> Tensor | Lazy:
        return top_k.largest_of_sum(x, rest, decay, out, kept(self.ratio, x.numel()))

    def encode_sparse(self, kept: Sparse) -> Parts:
        coded = positions.encode(kept.where, kept.shape.numel())
        return kept.values, coded, outline(kept)

    def decode_sparse(self, parts: Parts) -> tuple[Sparse, Parts]:
        values, coded, like, *below = parts
        return scattered(values, positions.decode(coded, values.numel(), like.numel()), like), tuple(below)
