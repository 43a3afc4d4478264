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
    known: dict[str, Any] = optimizer.state.get(source, {})
    unknown = any(isinstance(x, Tensor) and x.numel() > 1 and x.shape != shape for x in known.values())
    if not known or unknown:  # state of another shape cannot be carried over: the factors begin without state
        return
    found: dict[str, Any] = {}
    for name, value in known.items():
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
    for p in parameters:
        optimizer.state.pop(p, None)
