from dataclasses import dataclass

from ..core import Parts
from ..core.bounds import LOSSLESS, Bounds
from ..core.lazy import outline
from ..kernels import positions
from ..kernels.sparse_tensor import SparseTensor
from .sparsifier import SparseCodec, scattered


@dataclass(frozen=True, repr=False)
class Nonzero(SparseCodec):
    """Lossless sparse format: sends values and positions of the nonzero entries. The sign of zeros is not kept.

    Examples:
        >>> import torch
        >>> from thinwire import Nonzero
        >>> x = torch.zeros(1000)
        >>> x[::100] = 1.0
        >>> parts = Nonzero().encode((x,), seed=0)
        >>> sum(part.nbytes for part in parts if not part.is_meta)  # instead of 4000
        52
        >>> bool((Nonzero().decode(parts, seed=0)[0] == x).all())
        True
    """

    variable = True

    def bounds(self, size: int) -> Bounds:
        return LOSSLESS

    def encode_sparse(self, kept: SparseTensor) -> Parts:
        return kept.values, positions.encode(kept.where, kept.shape.numel()), outline(kept)

    def decode_sparse(self, parts: Parts) -> tuple[SparseTensor, Parts]:
        values, coded, like, *below = parts
        return scattered(values, positions.decode(coded, values.numel(), like.numel()), like), tuple(below)
