"""The base of sparsification codecs."""

from abc import abstractmethod

from torch import Tensor

from ..core import Codec, Parts, PayloadError
from ..core.lazy import Lazy, materialize, outline
from ..kernels import positions
from ..kernels.sparse_tensor import SparseTensor
from .validation import check_parts


class SparseCodec(Codec):
    """Sparsification: keeps some entries, and encodes their values and positions."""

    def keep(self, x: Tensor) -> SparseTensor:
        """The entries that are encoded; by default all nonzero ones."""
        flat = x.flatten()
        where = flat.nonzero().squeeze(1)
        return SparseTensor(flat[where], where, x)

    @abstractmethod
    def encode_sparse(self, kept: SparseTensor) -> Parts: ...

    @abstractmethod
    def decode_sparse(self, parts: Parts) -> tuple[SparseTensor, Parts]:
        """The kept entries, and the remaining parts."""

    def is_kept(self, x: SparseTensor) -> bool:
        """Whether these are entries as `keep` would give them."""
        return True

    def encode(self, parts: Parts, seed: int) -> Parts:
        x, *below = parts
        return *self.encode_sparse(self.keep(x)), *below

    def decode(self, parts: Parts, seed: int) -> Parts:
        kept, below = self.decode_sparse(parts)
        return kept.dense(), *below

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> Parts:
        return self.encode_sparse(x if isinstance(x, SparseTensor) and self.is_kept(x) else self.keep(materialize(x)))

    def decode_lazy(self, parts: Parts, seed: int) -> tuple[Tensor | Lazy, Parts]:
        return self.decode_sparse(parts)


class AtPositions(SparseCodec):
    """Keeps a number of entries that depends on the shape only, so that the payload has a fixed size."""

    def encode_sparse(self, kept: SparseTensor) -> Parts:
        coded = positions.encode(kept.where, kept.shape.numel())
        return kept.values, coded, outline(kept)

    def decode_sparse(self, parts: Parts) -> tuple[SparseTensor, Parts]:
        values, coded, like, *below = parts
        return scattered(values, positions.decode(coded, values.numel(), like.numel()), like), tuple(below)


def kept(ratio: float, size: int) -> int:
    """The number of entries that a ratio keeps of `size`: at least one, if there is one."""
    return min(size, max(1, round(ratio * size)))


def check_ratio(codec: str, ratio: float) -> None:
    if not 0 < ratio <= 1:
        raise ValueError(f"{codec} keeps a ratio between 0 and 1 of the entries, not {ratio!r}")


def scattered(values: Tensor, positions: Tensor, like: Tensor) -> SparseTensor:
    """The values at their positions, in the type of the tensor whose outline came with them."""
    check_parts(like, values, positions)
    if values.shape != positions.shape:
        raise PayloadError(f"{tuple(values.shape)} values cannot be those at {tuple(positions.shape)} positions")
    return SparseTensor(values.to(like.dtype), positions, like)
