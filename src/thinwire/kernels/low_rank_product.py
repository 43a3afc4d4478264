"""Products with low-rank factors, given as rows: of a factor and a matrix, and of two factors."""

import numpy as np
import torch
from torch import Tensor

from ..core.lazy import DeferredDifference, Lazy
from .compiled import array, loops_for

FEW = 8  # rank up to which loops over the rows beat the math libraries


def aligned(x: Tensor) -> Tensor:
    """The tensor, copied if it is not aligned as a new tensor is.

    At other addresses, math libraries may round differently. The address of a gradient depends on DDP's buckets,
    that of a reply on the other messages of the round.
    """
    return x if x.is_contiguous() and x.data_ptr() % 64 == 0 else x.clone(memory_format=torch.contiguous_format)


def dots(factor: Tensor, matrix: Tensor) -> Tensor:
    """factor @ matrix.T: the products of its rows with the matrix's rows."""
    rank = factor.shape[0]
    loops = loops_for(factor, matrix) if rank <= FEW else None
    if loops is None:
        return aligned(factor) @ aligned(matrix).T
    out = factor.new_empty(rank, matrix.shape[0])
    loops.dots(array(factor), array(matrix), array(out))
    return out


def sums(weights: Tensor, matrix: Tensor) -> Tensor:
    """weights @ matrix: the matrix's rows, weighted and summed."""
    rank = weights.shape[0]
    loops = loops_for(weights, matrix) if rank <= FEW else None
    if loops is None:
        return aligned(weights) @ aligned(matrix)
    out = weights.new_empty(rank, matrix.shape[1])
    loops.sums(array(weights), array(matrix), array(out))
    return out


class LowRankProduct(Lazy):
    """A matrix that is not materialized yet: the sum over i of left[i] (a column) times right[i] (a row)."""

    def __init__(self, left: Tensor, right: Tensor, like: Tensor) -> None:
        self.left, self.right = left, right
        self.shape, self.dtype, self.device = like.shape, like.dtype, left.device
        self.few = left.shape[0] <= FEW

    def copy_to(self, target: Tensor) -> None:
        """Write the product into a tensor of its shape."""
        loops = loops_for(self.left, self.right, target) if self.few else None
        if loops is not None:
            loops.product(array(self.left), array(self.right), array(target))
        elif self.few and target.is_contiguous() and target.dtype == self.left.dtype:
            matrix = target.view(self.left.shape[1], self.right.shape[1])
            torch.mul(self.left[0].unsqueeze(1), self.right[0], out=matrix)
            for column, row in zip(self.left[1:], self.right[1:], strict=True):
                matrix += column.unsqueeze(1) * row  # addcmul_ would round once where the loops round twice
        else:
            target.copy_((aligned(self.left).T @ aligned(self.right)).view(self.shape))

    def rest_of(self, total: Tensor) -> DeferredDifference:
        return DeferredDifference(total, self)

    def add_rest(self, x: Tensor, decay: float, total: Tensor, out: Tensor) -> None:
        """Write x + decay * (total - the product) into `out`."""
        loops = loops_for(self.left, self.right, x, total, out) if self.few else None
        if loops is not None:
            factors = array(self.left), array(self.right)
            loops.add_rest(array(x), np.float32(decay), array(total), *factors, array(out))
            return
        self.copy_to(out)
        torch.sub(total, out, out=out)
        if decay != 1:
            out.mul_(decay)
        out.add_(x)


def renewed(factor: Tensor, last: Tensor) -> Tensor:
    """The start of the next power iteration: each row scaled to maximum magnitude 1, against underflow and overflow.

    A row of zeros would stay zero forever, so the row of the last factor replaces it.
    """
    loops = loops_for(factor, last)
    if loops is None:
        size = factor.abs().amax(1, keepdim=True)
        return torch.where(size > 0, factor / size.clamp_min(torch.finfo(factor.dtype).tiny), last)
    out = torch.empty_like(factor)
    rows, new = array(factor), array(out)
    loops.renewed(rows, rows.view(np.int32), array(last), new, new.view(np.int32))
    return out
