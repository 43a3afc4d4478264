"""Products with thin factors, which are given as rows: of a matrix with a factor, and of two factors."""

import numpy as np
import torch
from torch import Tensor

from .compiled import loops_for

FEW = 8  # rows of a factor up to which going through them one by one beats the math libraries


def aligned(x: Tensor) -> Tensor:
    """The same numbers where a fresh tensor would be: elsewhere in memory, the math libraries may round differently.

    Where a gradient lies depends on DDP's buckets, where a reply lies on what else is said in the round.
    """
    return x if x.is_contiguous() and x.data_ptr() % 64 == 0 else x.clone(memory_format=torch.contiguous_format)


def dots(factor: Tensor, matrix: Tensor) -> Tensor:
    """factor @ matrix.T: the products of its rows with the matrix's rows."""
    loops = loops_for(factor, matrix) if len(factor) <= FEW else None
    if loops is None:
        return aligned(factor) @ aligned(matrix).T
    out = factor.new_empty(len(factor), len(matrix))
    loops.dots(factor.numpy(), matrix.numpy(), out.numpy())
    return out


def sums(weights: Tensor, matrix: Tensor) -> Tensor:
    """weights @ matrix: the matrix's rows, weighted and summed."""
    loops = loops_for(weights, matrix) if len(weights) <= FEW else None
    if loops is None:
        return aligned(weights) @ aligned(matrix)
    out = weights.new_empty(len(weights), matrix.shape[1])
    loops.sums(weights.numpy(), matrix.numpy(), out.numpy())
    return out


class Product:
    """A matrix that is not written out yet: the sum over i of left[i] (a column) times right[i] (a row)."""

    def __init__(self, left: Tensor, right: Tensor, like: Tensor) -> None:
        self.left, self.right = left, right
        self.shape, self.dtype = like.shape, like.dtype

    def dense(self) -> Tensor:
        """The tensor that it stands for."""
        product = torch.empty(self.shape, dtype=self.dtype, device=self.left.device)
        self.copy_to(product)
        return product

    def copy_to(self, target: Tensor) -> None:
        """Write it into a tensor of its shape."""
        if len(self.left) > FEW or not target.is_contiguous() or target.dtype != self.left.dtype:
            target.copy_((self.left.T @ self.right).view(self.shape))
            return
        matrix = self._as_matrix(target)
        loops = loops_for(self.left, self.right, matrix)
        if loops is not None:
            loops.product(self.left.numpy(), self.right.numpy(), matrix.numpy())
            return
        torch.mul(self.left[0].unsqueeze(1), self.right[0], out=matrix)
        for column, row in zip(self.left[1:], self.right[1:], strict=True):
            matrix += column.unsqueeze(1) * row  # addcmul_ would round once where the loops round twice

    def add_rest(self, x: Tensor, decay: float, total: Tensor, out: Tensor) -> None:
        """Write x + decay * (total - itself), each of them a tensor of its shape."""
        loops = loops_for(self.left, self.right, x, total, out) if len(self.left) <= FEW else None
        if loops is not None:
            xs, totals, outs = (self._as_matrix(tensor).numpy() for tensor in (x, total, out))
            loops.add_rest(xs, np.float32(decay), totals, self.left.numpy(), self.right.numpy(), outs)
            return
        self.copy_to(out)
        torch.sub(total, out, out=out)
        if decay != 1:
            out.mul_(decay)
        out.add_(x)

    def _as_matrix(self, x: Tensor) -> Tensor:
        return x.detach().view(self.left.shape[1], self.right.shape[1])
