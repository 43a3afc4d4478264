"""Normalization of a batch's channels by the moments over all replicas, with its gradient."""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .context import Context
from .running_moments import Moments


def moments_of(x: Tensor) -> Moments:
    """The moments of each channel of a batch."""
    count = x.shape[0] * prod(x.shape[2:])
    x = x.to(_working(x))
    rounded = x.mean(_axes(x))
    deviations = x - _per_channel(rounded, x)
    correction = deviations.mean(_axes(x))  # the rounding error of the mean
    squares = deviations.sub_(_per_channel(correction, x)).square_().sum(_axes(x))
    rounded, correction, squares = torch.stack([rounded, correction, squares]).cpu().to(torch.float64)
    return Moments(float(count), rounded + correction, squares)


class Normalized(torch.autograd.Function):
    """Subtracts the mean of each channel and scales; gradients take into account that both depend on all replicas."""

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
        low = (mean - high).to(high.dtype)  # the rounding error of `high`, which matters for means far from zero
        statistics = torch.stack([high, low, scale.to(high.dtype)]).to(x.device)
        ctx.save_for_backward(x, weight, statistics)
        ctx.count, ctx.context = count, context
        output = _standardized(x, statistics)
        if weight is not None:
            output.mul_(_per_channel(weight, x))
        if bias is not None:
            output.add_(_per_channel(bias, x))
        return output.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, statistics = ctx.saved_tensors
        standardized, gradient = _standardized(x, statistics), gradient.to(_working(x))
        # The gradients of weight and bias.
        sums = torch.stack([(gradient * standardized).sum(_axes(x)), gradient.sum(_axes(x))])
        input_gradient = None
        if ctx.needs_input_grad[0]:
            slope, shift = ctx.context.all_sum(sums) / ctx.count
            input_gradient = gradient - standardized.mul_(_per_channel(slope, x)).add_(_per_channel(shift, x))
            input_gradient.mul_(_per_channel(statistics[2] if weight is None else statistics[2] * weight, x))
        needed = zip(sums, ctx.needs_input_grad[1:3], strict=True)
        # Autograd casts them to the dtypes of the inputs.
        return input_gradient, *(total if is_needed else None for total, is_needed in needed), None, None, None, None


def _standardized(x: Tensor, statistics: Tensor) -> Tensor:
    high, low, scale = statistics
    return (x - _per_channel(high, x)).sub_(_per_channel(low, x)).mul_(_per_channel(scale, x))


def _per_channel(channels: Tensor, x: Tensor) -> Tensor:
    """One number per channel, in a shape that broadcasts over a batch."""
    return channels.to(_working(x)).view(-1, *[1] * (x.dim() - 2))


def _axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _working(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
