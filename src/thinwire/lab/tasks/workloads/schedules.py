"""Learning rate schedules, as factors of the optimizer's rate."""

import math
from collections.abc import Sequence

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def stepped(optimizer: Optimizer, steps: int, at: Sequence[float], factor: float = 0.1) -> LambdaLR:
    """Multiply by `factor` at these fractions of the training."""
    return LambdaLR(optimizer, lambda step: factor ** sum(step >= part * steps for part in at))


def cosine(optimizer: Optimizer, steps: int, warmup: float = 0.0, end: float = 0.0) -> LambdaLR:
    """Rise linearly over the fraction `warmup` of the training, then fall in half a cosine to the factor `end`."""
    rise = warmup * steps

    def factor(step: int) -> float:
        if step < rise:
            return (step + 1) / (rise + 1)
        done = min(1.0, (step - rise) / max(1.0, steps - rise))
        return end + (1 - end) * (1 + math.cos(math.pi * done)) / 2

    return LambdaLR(optimizer, factor)


def one_cycle(optimizer: Optimizer, steps: int, peak: float = 0.25) -> LambdaLR:
    """Rise linearly to the full rate at the fraction `peak` of the training, then fall linearly to zero."""
    rise = max(1.0, peak * steps)
    return LambdaLR(optimizer, lambda step: max(0.0, min((step + 1) / rise, (steps - step) / max(1.0, steps - rise))))


def poly(optimizer: Optimizer, steps: int, power: float = 0.9) -> LambdaLR:
    """Fall to zero as a power of the remaining fraction of the training."""
    return LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps) ** power)
