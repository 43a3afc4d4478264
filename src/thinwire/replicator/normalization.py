"""Channels of a batch, normalized by what is known of all replicas' batches."""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .context import Context
from .running_moments import Moments


def moments_of(x: Tensor) -> Moments:
    """Those of each channel of a batch."""
    count = x.shape[0] * prod(x.shape[2:])
    x = x.to(_working(x))
    near = x.mean(_axes(x))
    apart = x - _spread(near, x)
    rest = apart.mean(_axes(x))  # by how far the mean was rounded
    squares = apart.sub_(_spread(rest, x)).square_().sum(_axes(x))
    near, rest, squares = torch.stack([near, rest, squares]).cpu().to(torch.float64)
    return Moments(float(count), near + rest, squares)


class Normalized(torch.autograd.Function):
    """Each channel less the mean, times a scale; gradients know that both were made of all replicas' values."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        scale: Tensor,
        count: float,
        context: Context,
    ) -> Tensor:
        high = mean.to(_working(x))
        low = (mean - high).to(high.dtype)  # what a mean that is far from zero would lose
        statistics = torch.stack([high, low, scale.to(high.dtype)]).to(x.device)
        ctx.save_for_backward(x, weight, statistics)
        ctx.count, ctx.context = count, context
        made = _standard(x, statistics)
        if weight is not None:
            made.mul_(_spread(weight, x))
        if bias is not None:
            made.add_(_spread(bias, x))
        return made.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, statistics = ctx.saved_tensors
        standard, gradient = _standard(x, statistics), gradient.to(_working(x))
        sums = torch.stack([(gradient * standard).sum(_axes(x)), gradient.sum(_axes(x))])  # of the weight, of the bias
        of_input = None
        if ctx.needs_input_grad[0]:
            slope, shift = ctx.context.all_sum(sums) / ctx.count
            of_input = gradient - standard.mul_(_spread(slope, x)).add_(_spread(shift, x))
            of_input.mul_(_spread(statistics[2] if weight is None else statistics[2] * weight, x))
        needed = zip(sums, ctx.needs_input_grad[1:3], strict=True)
        # Torch casts them to the types that the inputs have.
        return of_input, *(total if asked else None for total, asked in needed), None, None, None, None


def _standard(x: Tensor, statistics: Tensor) -> Tensor:
    high, low, scale = statistics
    return (x - _spread(high, x)).sub_(_spread(low, x)).mul_(_spread(scale, x))


def _spread(channels: Tensor, x: Tensor) -> Tensor:
    """A number for each channel, to be used with all of a batch."""
    return channels.to(_working(x)).view(-1, *[1] * (x.dim() - 2))


def _axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _working(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
