"""The generalized normal distribution.

Its density is shape / (2 scale Gamma(1/shape)) exp(-(|x - location| / scale)^shape). Shape 2 is the normal, 1 the
Laplace distribution. Gradients often have a shape below 1: many small entries and few large ones.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_SHAPE, MOST_SHAPE = 0.1, 20.0
TINY = 1e-17  # below this power of a magnitude, the density is constant in 64 bits


@dataclass(frozen=True)
class GeneralizedNormal:
    """A generalized normal distribution. Methods take numbers or tensors, and return 64-bit tensors."""

    shape: float
    scale: float
    location: float = 0.0

    def __post_init__(self) -> None:
        check_shape(self.shape)
        if not (0 < self.scale < math.inf and math.isfinite(self.location)):
            raise ValueError(
                f"a distribution has a scale above 0 and a finite location, not {self.scale!r}, {self.location!r}"
            )

    @property
    def variance(self) -> float:
        return self.scale**2 * moment(2, self.shape)

    def density(self, x: Tensor | float) -> Tensor:
        peak = math.exp(-math.lgamma(1 + 1 / self.shape)) / (2 * self.scale)
        return peak * torch.exp(-self._power(x))

    def below(self, x: Tensor | float) -> Tensor:
        """The probability below x (the CDF), with a small relative error even in the tail."""
        return self._beyond(x, -1)

    def above(self, x: Tensor | float) -> Tensor:
        """The probability above x (1 - CDF), with a small relative error even in the tail."""
        return self._beyond(x, 1)

    def quantile(self, p: Tensor | float) -> Tensor:
        """The x with probability p below it. Near p = 1, 64 bits are coarse: use the mirrored quantile near 0."""
        p = double(p)
        if not bool(((p >= 0) & (p <= 1)).all()):
            raise ValueError("a probability is between 0 and 1")
        beyond = 2 * torch.minimum(p, 1 - p)
        return self.location + self.scale * torch.sign(p - 0.5) * _magnitude(beyond, 2 * (p - 0.5).abs(), self.shape)

    def _power(self, x: Tensor | float) -> Tensor:
        return ((double(x) - self.location).abs() / self.scale) ** self.shape

    def _beyond(self, x: Tensor | float, side: int) -> Tensor:
        a, power = double(1 / self.shape), self._power(x)
        far = (double(x) - self.location) * side > 0
        return torch.where(far, torch.special.gammaincc(a, power), 1 + torch.special.gammainc(a, power)) / 2


def check_shape(shape: float) -> None:
    if not LEAST_SHAPE <= shape <= MOST_SHAPE:
        raise ValueError(f"a distribution's shape is from {LEAST_SHAPE:g} to {MOST_SHAPE:g}, not {shape!r}")


def double(x: Tensor | float) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def moment(power: int, shape: float) -> float:
    """The mean of magnitudes to this power, at scale 1."""
    return math.exp(math.lgamma((power + 1) / shape) - math.lgamma(1 / shape))


def _magnitude(beyond: Tensor, within: Tensor, shape: float) -> Tensor:
    """The magnitude at scale 1 with these probabilities beyond and within it: Newton's method for its logarithm.

    The logarithms of both probabilities are concave in it, so that steps from one side do not overshoot; a step that
    leaves the bounds is replaced by bisection.
    """
    a, log_peak = double(1 / shape), -math.lgamma(1 + 1 / shape)
    inner = within < 0.5  # solve for the smaller probability
    target = torch.where(inner, within, beyond).log()
    low = within.log() - log_peak  # no density exceeds that at the location
    high = torch.full_like(low, math.log(1000) / shape)  # beyond, probabilities underflow 64 bits
    x = torch.where(inner, low, torch.log(1 / shape - beyond.log()) / shape).clamp(low, high)
    for _ in range(100):
        power = torch.exp(shape * x)
        share = torch.where(inner, torch.special.gammainc(a, power), torch.special.gammaincc(a, power)).log()
        share = torch.where(inner & (power < TINY), x + log_peak, share)
        off = torch.where(inner, target - share, share - target)  # above 0 if x is too small
        low, high = torch.where(off > 0, x, low), torch.where(off < 0, x, high)
        slope = torch.exp(x + log_peak - power - share)
        step = off / slope
        close = step.abs() <= 1e-12 * (1 + x.abs())
        x = torch.where(close | ((x + step >= low) & (x + step <= high)), x + step, (low + high) / 2)
        if bool((close | (within == 0) | (beyond == 0)).all()):
            break
    return torch.where(within == 0, 0.0, torch.where(beyond == 0, math.inf, x.exp()))
