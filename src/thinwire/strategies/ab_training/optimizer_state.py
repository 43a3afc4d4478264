"""What an optimizer remembers of a weight, as what it would remember of its factors.

With W = A B and G the gradient of W, the gradient of A is G B' and that of B is A' G. So means of gradients go over to
factors exactly, and means of squares as if entries had nothing to do with each other.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...kernels.low_rank_product import aligned

# In the names of what is never negative: sums and means of squares, largest sizes, sizes of steps.
SQUARES = ("sq", "square", "sum", "acc_delta", "exp_inf", "step_size")


def carry(
    optimizer: Optimizer,
    source: nn.Parameter,
    shape: torch.Size,
    to: nn.Parameter,
    left: Tensor | None,
    right: Tensor | None,
) -> None:
    """Give `to` what is known of `source`, of so many entries: left @ x @ right, each of which may be left out."""
    known: dict[str, Any] = optimizer.state.get(source, {})
    strange = any(isinstance(x, Tensor) and x.numel() > 1 and x.shape != shape for x in known.values())
    if not known or strange:  # of what is not understood, nothing is known of factors
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
