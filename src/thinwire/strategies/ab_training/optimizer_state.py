"""Carries the optimizer's state of a weight over to its factors.

With W = A B and G the gradient of W, the gradient of A is G B' and that of B is A' G. So first moments carry over
exactly, and second moments as if the entries of G were uncorrelated.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...kernels.low_rank_product import aligned

# Substrings in the names of nonnegative state: sums and means of squares, maxima, step sizes.
SQUARES = ("sq", "square", "sum", "acc_delta", "exp_inf", "step_size")


def carry(
    optimizer: Optimizer,
    source: nn.Parameter,
    shape: torch.Size,
    to: nn.Parameter,
    left: Tensor | None,
    right: Tensor | None,
) -> None:
    """Set the state of `to` to left @ x @ right for each tensor x of this shape in the state of `source`."""
    state: dict[str, Any] = optimizer.state.get(source, {})
    unsupported = any(isinstance(x, Tensor) and x.numel() > 1 and x.shape != shape for x in state.values())
    if not state or unsupported:  # state of another shape cannot be carried over: the factors start without state
        return
    found: dict[str, Any] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.shape != shape:
            found[name] = value.clone() if isinstance(value, Tensor) else value
            continue
        squares = any(part in name for part in SQUARES)
        moved = aligned(value.flatten(1))
        moved = moved if left is None else aligned(left.square() if squares else left) @ moved
        moved = moved if right is None else moved @ aligned(right.square() if squares else right)
        found[name] = moved.reshape(to.shape).contiguous()
    optimizer.state[to] = found


def forget(optimizer: Optimizer, *parameters: nn.Parameter) -> None:
    """Delete the optimizer's state of these parameters."""
    for p in parameters:
        optimizer.state.pop(p, None)
