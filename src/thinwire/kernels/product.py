"""Products of two thin factors, given as rows: the sum over i of left[i] (a column) times right[i] (a row)."""

import torch
from torch import Tensor

FEW = 4  # rows up to which adding them one by one beats a matrix product, whose speed then depends on the shape


class Product:
    """A matrix that is not written out yet, so that it can be written, or subtracted, where it belongs."""

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
        matrix = self._in_place(target)
        if matrix is None:
            target.copy_((self.left.T @ self.right).view(self.shape))
            return
        torch.mul(self.left[0].unsqueeze(1), self.right[0], out=matrix)
        for column, row in zip(self.left[1:], self.right[1:], strict=True):
            matrix.addcmul_(column.unsqueeze(1), row)

    def subtract_from(self, target: Tensor) -> None:
        """Take it away from a tensor of its shape, in place."""
        matrix = self._in_place(target)
        if matrix is None:
            target.sub_((self.left.T @ self.right).view(self.shape))
            return
        for column, row in zip(self.left, self.right, strict=True):
            matrix.addcmul_(column.unsqueeze(1), row, value=-1)

    def _in_place(self, target: Tensor) -> Tensor | None:
        """The target as a matrix, if the factors can be worked into it row by row."""
        if len(self.left) > FEW or not target.is_contiguous() or target.dtype != self.left.dtype:
            return None
        return target.view(self.left.shape[1], self.right.shape[1])
