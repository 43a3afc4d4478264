"""Distances between entries and a distribution."""

import math

import torch
from torch import Tensor

from .entries import CHUNK, centered, not_finite, sampled
from .generalized_normal import GeneralizedNormal


def wasserstein(x: Tensor, distribution: GeneralizedNormal, points: int = 3000) -> float:
    """The Wasserstein-2 distance between entries and a distribution, in standard deviations of the entries.

    Compares about `points` of the sorted entries with as many quantiles of the distribution, from 0 to 1. The first and
    the last are left out, as these quantiles are infinite.
    """
    entries, _ = centered(x, 0.0, None)
    sample = sampled(entries, points).double().sort().values
    spread = math.sqrt(_variance(entries))
    if sample.numel() < 3 or not 0 < spread < math.inf:
        raise ValueError(
            f"{entries.numel()} entries of a deviation of {spread:g} cannot be compared with a distribution"
        )
    shares = torch.linspace(0, 1, sample.numel(), dtype=torch.float64, device=x.device)[1:-1]
    return float((sample[1:-1] - distribution.quantile(shares)).square().mean().sqrt()) / spread


def kolmogorov(x: Tensor, distribution: GeneralizedNormal, sample: int | None = 250_000) -> float:
    """The Kolmogorov-Smirnov distance: the largest difference between the two cumulative distribution functions.

    Of more than `sample` entries, that many are sampled, which adds up to 0.003. `sample` None takes all.

    Examples:
        >>> import torch
        >>> from thinwire.inspect import GeneralizedNormal, kolmogorov
        >>> x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
        >>> normal, laplace = GeneralizedNormal(2.0, 2**0.5), GeneralizedNormal(1.0, 0.5**0.5)
        >>> round(kolmogorov(x, normal), 2), round(kolmogorov(x, laplace), 2)
        (0.01, 0.07)
    """
    entries, _ = centered(x, 0.0, sample)
    below = distribution.below(entries.sort().values)
    steps = torch.arange(entries.numel() + 1, dtype=torch.float64, device=x.device) / entries.numel()
    distance = float(torch.maximum(steps[1:] - below, below - steps[:-1]).max())
    if math.isnan(distance):
        raise not_finite()
    return distance


def _variance(entries: Tensor) -> float:
    count = entries.numel()
    mean = math.fsum(float(chunk.sum(dtype=torch.float64)) for chunk in torch.split(entries, CHUNK)) / count
    return math.fsum(float((chunk.double() - mean).square_().sum()) for chunk in torch.split(entries, CHUNK)) / count
