"""Running counts, means and sums of squared deviations, which can be merged."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .context import Context


@dataclass(frozen=True, eq=False)
class Moments:
    """The number of values, their mean, and the sum of their squared deviations from it."""

    count: float
    mean: Tensor  # float64, on the CPU; never modified in place
    squares: Tensor

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> "Moments":
        return cls(0.0, torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))

    def merged(self, other: "Moments") -> "Moments":
        """The moments of the values of both."""
        if other.count == 0:  # its mean may be NaN
            return self
        count, difference = self.count + other.count, other.mean - self.mean
        between = difference * (difference * (self.count * other.count / count))
        return Moments(count, self.mean + difference * (other.count / count), self.squares + other.squares + between)

    def over_replicas(self, context: Context) -> "Moments":
        """The moments of all replicas' values, bit-identical on each. Shapes must match."""
        mine = torch.cat([self.mean.new_tensor([self.count]), self.mean.flatten(), self.squares.flatten()])
        total = self.empty(self.mean.shape)
        for row in context.all_gather(mine):
            mean, squares = row[1:].view(2, *self.mean.shape)
            total = total.merged(Moments(row[0].item(), mean, squares))
        return total
