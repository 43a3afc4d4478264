"""The best scale for rounding a distribution to a few values."""

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from .generalized_normal import LEAST_SHAPE, MOST_SHAPE, check_shape, double, moment
from .search import lowest

NODES = 64  # shapes at which the best scale is computed; between them it is interpolated
JUMP = 0.5  # larger differences of log scales at adjacent nodes are jumps between octaves, and not interpolated
HEADROOM, COARSE = 1e6, 0.1  # upper end of the search, as the largest value in standard deviations; step of the search


def grid_scale(values: Tensor, shape: float) -> float:
    """The factor for entries of a distribution of scale 1 with the least error when rounded to sorted values.

    Entries are multiplied by it, rounded to the nearest value, and divided by it; the error is the mean square. Taken
    from a table over shapes, which is computed once for these values.
    """
    check_shape(shape)
    nodes, scales = _grid_scales(tuple(values.tolist()))
    x = math.log(shape)
    i = min(max(bisect_right(nodes, x), 1), len(nodes) - 1)
    share = (x - nodes[i - 1]) / (nodes[i] - nodes[i - 1])
    if abs(scales[i] - scales[i - 1]) > JUMP:
        share = round(share)
    return math.exp(scales[i - 1] + share * (scales[i] - scales[i - 1])) / math.sqrt(moment(2, shape))


def grid_error(values: Tensor, shape: float, scale: float) -> float:
    """The mean squared rounding error of entries of a distribution of scale 1, relative to their variance."""
    check_shape(shape)
    log_scale = math.log(scale * math.sqrt(moment(2, shape)))
    return _grid_errors(double(values), shape)(double(log_scale).reshape(1)).item()


@lru_cache(maxsize=64)
def _grid_scales(values: tuple[float, ...]) -> tuple[list[float], list[float]]:
    """Logarithms of shapes, and of the best scales at variance 1: suited to linear interpolation."""
    if len(values) < 2 or any(a >= b for a, b in pairwise(values)) or not math.isfinite(sum(values)):
        raise ValueError(f"a grid has two or more finite values that increase, not {values[:5]}")
    nodes = torch.linspace(math.log(LEAST_SHAPE), math.log(MOST_SHAPE), NODES, dtype=torch.float64).tolist()
    return nodes, [_best_log_scale(torch.tensor(values, dtype=torch.float64), math.exp(node)) for node in nodes]


def _best_log_scale(values: Tensor, shape: float) -> float:
    """The largest of the scales that are about equally good: on a floating-point grid, every octave has one."""
    errors, top = _grid_errors(values, shape), math.log(values.abs().max().item())
    x = torch.arange(top - math.log(HEADROOM), top + math.log(30), COARSE, dtype=torch.float64)
    y = errors(x)
    dips = (y[1:-1] <= y[:-2]) & (y[1:-1] <= y[2:]) & (y[1:-1] <= 1.01 * y.min())
    best = 1 + int(dips.nonzero().max() if dips.any() else y[1:-1].argmin())
    return lowest(errors, x[best - 1].item(), x[best + 1].item(), points=8)


def _grid_errors(values: Tensor, shape: float) -> Callable[[Tensor], Tensor]:
    """A function from log scales to mean squared errors at variance 1, as exact integrals."""
    edges = (values[1:] + values[:-1]) / 2
    a, square = double(1 / shape), moment(2, shape)
    size = moment(1, shape) / math.sqrt(square)

    def errors(log_scales: Tensor) -> Tensor:
        scales = log_scales.exp()[:, None]
        power = (edges.abs() / scales * math.sqrt(square)) ** shape
        below = (1 + edges.sign() * torch.special.gammainc(a, power)) / 2
        mean_below = -size * torch.special.gammaincc(2 * a, power) / 2
        zero, one = torch.zeros_like(scales), torch.ones_like(scales)
        shares = torch.diff(below, prepend=zero, append=one)
        means = torch.diff(mean_below, prepend=zero, append=zero)
        rounded = values / scales
        return 1 - (rounded * (2 * means - rounded * shares)).sum(1)

    return errors
