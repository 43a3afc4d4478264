"""Minimization of a function of one variable."""

from collections.abc import Callable

import torch
from torch import Tensor


def lowest(function: Callable[[Tensor], Tensor], low: float, high: float, points: int = 24) -> float:
    """The minimum of a vectorized function between bounds: a grid search, refined twice, then a parabola."""
    for _ in range(3):
        x = torch.linspace(low, high, points, dtype=torch.float64)
        y = function(x)
        best = int(y.argmin())
        low, high = x[max(best - 1, 0)].item(), x[min(best + 1, points - 1)].item()
    if not 0 < best < points - 1:
        return x[best].item()
    before, there, after = y[best - 1 : best + 2].tolist()
    bend = before - 2 * there + after
    return x[best].item() + (0.5 * (before - after) / bend * (high - low) / 2 if bend > 0 else 0.0)
