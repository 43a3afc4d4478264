"""Helpers of the low-rank reducers. Factors are stored as rows [rank, n], the layout with fast products."""

from math import inf

import torch
from torch import Tensor

from ..core import Codec
from ..core.precision import working
from ..kernels.low_rank_product import aligned


def matrix_shape(shape: torch.Size) -> tuple[int, int]:
    """A tensor as a matrix: its first dimension (outputs) against all others."""
    return shape[0], shape[1:].numel()


def pays(shape: torch.Size, rank: int, least_ratio: float, factors: int = 2) -> bool:
    """Whether this number of low-rank factors gives a compression ratio of at least `least_ratio`."""
    if len(shape) < 2 or shape.numel() == 0:
        return False
    rows, columns = matrix_shape(shape)
    return rows * columns >= least_ratio * min(rank, rows, columns) * (rows + columns) * factors / 2


def check(name: str, rank: int, least_ratio: float, codec: Codec) -> None:
    if not (isinstance(rank, int) and rank >= 1):
        raise ValueError(f"{name} takes a rank of 1 or more, not {rank!r}")
    if not 1 <= least_ratio < inf:
        raise ValueError(f"{name} takes a least_ratio of 1 or more, not {least_ratio!r}")
    if not isinstance(codec, Codec):
        raise ValueError(f"{name} takes a codec, not {codec!r}")


def first_factors(like: Tensor, rank: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random factors, left and right, that are the same on every rank."""
    rows, columns = matrix_shape(like.shape)
    generator = torch.Generator().manual_seed(seed)
    right, left = (torch.randn(min(rank, rows, columns), size, generator=generator) for size in (columns, rows))
    return left.to(like.device, working(like.dtype)), right.to(like.device, working(like.dtype))


def as_matrix(x: Tensor) -> Tensor:
    return x.reshape(matrix_shape(x.shape)).to(working(x.dtype)).contiguous()


def orthonormal(factor: Tensor) -> Tensor:
    """An orthonormal basis of the factor's rows; rows that vanish become unit vectors, never NaN."""
    basis: Tensor = torch.linalg.qr(aligned(factor).T).Q.T
    return basis.contiguous()
