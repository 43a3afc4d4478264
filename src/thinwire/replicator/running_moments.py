"""What has to be known of values to know their mean and variance, and those of more of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .context import Context


@dataclass(frozen=True, eq=False)
class Moments:
    """How many values there were, their mean, and the sum of their squared deviations from it."""

    count: float
    mean: Tensor  # float64, on the CPU, and never changed in place
    squares: Tensor

    @classmethod
    def of_nothing(cls, shape: tuple[int, ...]) -> "Moments":
        return cls(0.0, torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))

    def joined(self, other: "Moments") -> "Moments":
        """Those of the values of both."""
        if other.count == 0:  # the mean of nothing may be NaN
            return self
        count, apart = self.count + other.count, other.mean - self.mean
        between = apart * (apart * (self.count * other.count / count))
        return Moments(count, self.mean + apart * (other.count / count), self.squares + other.squares + between)

    def of_all(self, context: Context) -> "Moments":
        """Those of the values of all replicas, with the same bits on each. The shape has to be the same, too."""
        mine = torch.cat([self.mean.new_tensor([self.count]), self.mean.flatten(), self.squares.flatten()])
        total = self.of_nothing(self.mean.shape)
        for row in context.all_gather(mine):
            mean, squares = row[1:].view(2, *self.mean.shape)
            total = total.joined(Moments(row[0].item(), mean, squares))
        return total
