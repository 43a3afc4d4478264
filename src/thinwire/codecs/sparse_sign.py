from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Parts, PayloadError
from ..core.bounds import Bounds, contraction
from ..core.lazy import outline
from ..core.precision import working
from ..kernels import gaps
from ..kernels.bits import pack, packed_bytes, unpack
from ..kernels.sparse_tensor import SparseTensor
from .sparsifier import SparseCodec, scattered
from .validation import check_parts


@dataclass(frozen=True, repr=False)
class SparseSign(SparseCodec):
    """Signs of a sparse tensor: sends positions and signs of the nonzero entries, and their mean magnitude.

    Examples:
        >>> import torch
        >>> from thinwire import Chain, SparseSign, TopK
        >>> codec = Chain(TopK(0.5), SparseSign())
        >>> codec.decode(codec.encode((torch.tensor([0.1, -3.0, 0.5, 1.0]),), seed=0), seed=0)[0].tolist()
        [0.0, -2.0, 0.0, 2.0]
    """

    variable = True
    numeric = False

    def bounds(self, size: int) -> Bounds:
        return contraction(size)

    def encode_sparse(self, kept: SparseTensor) -> Parts:
        signs = pack((kept.values < 0).to(torch.uint8), 1)
        return *gaps.encode(kept.where, kept.shape.numel()), signs, mean_magnitude(kept.values), outline(kept)

    def decode_sparse(self, parts: Parts) -> tuple[SparseTensor, Parts]:
        rests, lows, signs, size, like, *below = parts
        check_parts(like, rests, lows, signs, size)
        check_size(size, like)
        where = gaps.decode(rests, lows, like.numel())
        if signs.dtype != torch.uint8 or signs.numel() != packed_bytes(where.numel(), 1):
            raise PayloadError(f"{signs.numel()} bytes cannot be the signs of {where.numel()} entries")
        return scattered(signed(unpack(signs, where.numel(), 1), size), where, like), tuple(below)


def mean_magnitude(values: Tensor) -> Tensor:
    """The mean magnitude; summed in 64 bits, so that the mean of equal 32-bit values is exact."""
    return (values.abs().sum(dtype=torch.float64) / max(values.numel(), 1)).to(working(values.dtype))


def check_size(size: Tensor, like: Tensor) -> None:
    if size.shape != () or size.dtype != working(like.dtype):
        raise PayloadError(f"{size.dtype} {tuple(size.shape)} cannot be the mean magnitude of {like.dtype} entries")


def signed(negative: Tensor, size: Tensor) -> Tensor:
    return (1 - 2 * negative.to(size.dtype)) * size
