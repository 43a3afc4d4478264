"""What gradients look like: the generalised normal law, fits of it, and the scale at which few values serve it best.

The law has a density of shape / (2 scale Gamma(1/shape)) exp(-(|x - location| / scale)^shape). Shape 2 is the normal
law, 1 is Laplace's; gradients are often below 1, with many small entries and few large ones.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

LEAST_SHAPE, MOST_SHAPE = 0.1, 20.0
SMALLEST = torch.finfo(torch.float32).tiny  # the least scale of a fit: it can be divided by in 32 bits
MANTISSA = 7  # bits of it that tell magnitudes apart: bins are 0.8 % wide, and their centres tell all that fits need
CHUNK = 1 << 19  # entries at a time, so that what is made of them stays in the cache
NODES = 64  # shapes at which the best scales are found, for those between
JUMP = 0.5  # between the logarithms of scales at neighbouring shapes: they are of different octaves, none is between
HEADROOM, COARSE = 1e6, 0.1  # the largest value, in standard deviations, that a search begins at; and its steps
TINY = 1e-17  # below this power of a magnitude, the density is what it is at the location


@dataclass(frozen=True)
class Law:
    """A generalised normal law. Takes numbers or tensors; answers in 64 bits."""

    shape: float
    scale: float
    location: float = 0.0

    def __post_init__(self) -> None:
        _check_shape(self.shape)
        if not (0 < self.scale < math.inf and math.isfinite(self.location)):
            raise ValueError(f"a law has a scale above 0 and a finite location, not {self.scale!r}, {self.location!r}")

    @property
    def variance(self) -> float:
        return self.scale**2 * _moment(2, self.shape)

    def density(self, x: Tensor | float) -> Tensor:
        peak = math.exp(-math.lgamma(1 + 1 / self.shape)) / (2 * self.scale)
        return peak * torch.exp(-self._power(x))

    def below(self, x: Tensor | float) -> Tensor:
        """The share below x; accurate in relative terms however small it is."""
        return self._beyond(x, -1)

    def above(self, x: Tensor | float) -> Tensor:
        """The share above x; accurate in relative terms however small it is."""
        return self._beyond(x, 1)

    def quantile(self, p: Tensor | float) -> Tensor:
        """The x with a share p below it. Shares close to 1 are coarse in 64 bits: those close to 0 mirror them."""
        p = _double(p)
        if not bool(((p >= 0) & (p <= 1)).all()):
            raise ValueError("a share is between 0 and 1")
        beyond = 2 * torch.minimum(p, 1 - p)
        return self.location + self.scale * torch.sign(p - 0.5) * _magnitude(beyond, 2 * (p - 0.5).abs(), self.shape)

    def _power(self, x: Tensor | float) -> Tensor:
        return ((_double(x) - self.location).abs() / self.scale) ** self.shape

    def _beyond(self, x: Tensor | float, side: int) -> Tensor:
        a, power = _double(1 / self.shape), self._power(x)
        far = (_double(x) - self.location) * side > 0
        return torch.where(far, torch.special.gammaincc(a, power), 1 + torch.special.gammainc(a, power)) / 2


def fit_by_moments(x: Tensor, *, location: float | None = 0.0, sample: int | None = None, zeros: bool = True) -> Law:
    """The law with the mean magnitude and the mean square of these entries: the fastest fit.

    It depends on the few largest entries: for thousands of entries of a small shape, it is off by several percent more
    than the likelihood's. The arguments, and what comes of entries that are all alike, are as in `fit_by_likelihood`.
    """
    entries, location = _centred(x, location, sample, zeros)
    size = square = 0.0
    for chunk in torch.split(entries, CHUNK):
        double = chunk.double()
        size += float(double.abs().sum())
        square += float(double.dot(double))
    if not math.isfinite(square):
        raise _not_finite()
    if not size:
        return Law(1.0, SMALLEST, location)
    mean, ratio = size / entries.numel(), square * entries.numel() / size**2
    low, high = math.log(LEAST_SHAPE), math.log(MOST_SHAPE)
    for _ in range(50):
        middle = (low + high) / 2
        shape = math.exp(middle)
        low, high = (middle, high) if _moment(2, shape) / _moment(1, shape) ** 2 > ratio else (low, middle)
    shape = min(max(math.exp(low), LEAST_SHAPE), MOST_SHAPE)
    return Law(shape, max(mean / _moment(1, shape), SMALLEST), location)


def fit_by_likelihood(
    x: Tensor,
    shape: float | None = None,
    *,
    location: float | None = 0.0,
    sample: int | None = None,
    zeros: bool = True,
) -> Law:
    """The law under which these entries are likeliest, of a given shape if there is one: 2 for normal, 1 for Laplace.

    `location` None takes the median: the likelihood of a shape below 1 has a peak at every entry, and a mean follows
    the few that are largest. `sample` fits about so many of the entries instead of all, spread over all of them.
    `zeros` False leaves out entries that are 0: where units are dead there are too many of them for any law, and the
    likeliest shape is the least, whatever the other entries are.
    Entries count as 32-bit numbers. If all are zero, the scale is the smallest there is and the shape, if it is not
    given, 1; if all are of one size, the shape is the largest. Raises ValueError if there are no entries, or NaN or
    infinity among them.
    """
    if shape is not None:
        _check_shape(shape)
    entries, location = _centred(x, location, sample, zeros)
    logs, shares = _histogram(entries)
    if not logs.numel():
        return Law(1.0 if shape is None else shape, SMALLEST, location)
    largest = logs[-1].item()
    logs -= largest  # so that no power of them overflows

    def log_scales(log_shapes: Tensor) -> Tensor:
        shapes = log_shapes.exp()
        return (log_shapes + (torch.outer(shapes, logs).exp_() @ shares).log()) / shapes

    def surprise(log_shapes: Tensor) -> Tensor:
        inverse = torch.exp(-log_shapes)
        return torch.lgamma(1 + inverse) + log_scales(log_shapes) + inverse

    if shape is None:
        log_shape = _lowest(surprise, math.log(LEAST_SHAPE), math.log(MOST_SHAPE))
        shape = min(max(math.exp(log_shape), LEAST_SHAPE), MOST_SHAPE)
    log_scale = log_scales(_double(shape).log().reshape(1)).item() + largest
    return Law(shape, max(math.exp(log_scale), SMALLEST), location)


def wasserstein(x: Tensor, law: Law, points: int = 3000) -> float:
    """How far entries are from a law, Wasserstein-2, in standard deviations of the entries.

    Compares about so many of the entries, in order, with as many quantiles of the law, from 0 to 1. The first and the
    last are left out, as these quantiles are infinite.
    """
    entries, _ = _centred(x, 0.0, None)
    there = _sampled(entries, points).double().sort().values
    spread = math.sqrt(_variance(entries))
    if there.numel() < 3 or not 0 < spread < math.inf:
        raise ValueError(f"{entries.numel()} entries of a deviation of {spread:g} cannot be compared with a law")
    shares = torch.linspace(0, 1, there.numel(), dtype=torch.float64, device=x.device)[1:-1]
    return float((there[1:-1] - law.quantile(shares)).square().mean().sqrt()) / spread


def kolmogorov(x: Tensor, law: Law, sample: int | None = 250_000) -> float:
    """The largest difference between the share of entries below a value and the law's (Kolmogorov and Smirnov).

    It is exact for so many entries; of more, so many are taken, which adds up to 0.003. `sample` None takes all.
    """
    entries, _ = _centred(x, 0.0, sample)
    below = law.below(entries.sort().values)
    steps = torch.arange(entries.numel() + 1, dtype=torch.float64, device=x.device) / entries.numel()
    distance = float(torch.maximum(steps[1:] - below, below - steps[:-1]).max())
    if math.isnan(distance):
        raise _not_finite()
    return distance


def grid_scale(values: Tensor, shape: float) -> float:
    """What to multiply the entries of a law of scale 1 by, before each becomes the nearest of a few sorted values.

    Divided by it again, they differ least from what they were, in the mean square. From a table over the shapes, made
    once for these values.
    """
    _check_shape(shape)
    nodes, scales = _grid_scales(tuple(values.tolist()))
    x = math.log(shape)
    i = min(max(bisect_right(nodes, x), 1), len(nodes) - 1)
    share = (x - nodes[i - 1]) / (nodes[i] - nodes[i - 1])
    if abs(scales[i] - scales[i - 1]) > JUMP:
        share = round(share)
    return math.exp(scales[i - 1] + share * (scales[i] - scales[i - 1])) / math.sqrt(_moment(2, shape))


def grid_error(values: Tensor, shape: float, scale: float) -> float:
    """The mean square of what entries of a law of scale 1 lose that way, over their variance."""
    _check_shape(shape)
    log_scale = math.log(scale * math.sqrt(_moment(2, shape)))
    return _grid_errors(_double(values), shape)(_double(log_scale).reshape(1)).item()


def _check_shape(shape: float) -> None:
    if not LEAST_SHAPE <= shape <= MOST_SHAPE:
        raise ValueError(f"a law's shape is from {LEAST_SHAPE:g} to {MOST_SHAPE:g}, not {shape!r}")


def _not_finite() -> ValueError:
    return ValueError("there is NaN or infinity among the entries: they follow no law")


def _double(x: Tensor | float) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def _moment(power: int, shape: float) -> float:
    """The mean of a power of the magnitudes, at scale 1."""
    return math.exp(math.lgamma((power + 1) / shape) - math.lgamma(1 / shape))


def _variance(entries: Tensor) -> float:
    count = entries.numel()
    mean = math.fsum(float(chunk.sum(dtype=torch.float64)) for chunk in torch.split(entries, CHUNK)) / count
    return math.fsum(float((chunk.double() - mean).square_().sum()) for chunk in torch.split(entries, CHUNK)) / count


def _centred(x: Tensor, location: float | None, sample: int | None, zeros: bool = True) -> tuple[Tensor, float]:
    """The entries to look at, less the location, and the location: their median, if there is none."""
    if not x.numel():
        raise ValueError("there is no law of no entries")
    if not x.is_floating_point():
        raise ValueError(f"a law is of real floating-point numbers, not {x.dtype}")
    entries = _sampled(x.detach().flatten(), sample).float()
    if not zeros:
        others = entries[entries != 0]
        entries = others if others.numel() else entries
    if location is None:
        location = float(entries.median())
        if not math.isfinite(location):
            raise _not_finite()
    return entries - location if location else entries, location


def _sampled(entries: Tensor, sample: int | None) -> Tensor:
    """One entry of each of so many equal stretches, at a place drawn in it, so as not to fall in step with rows."""
    count = entries.numel()
    if sample is None or sample >= count:
        return entries
    if sample < 1:
        raise ValueError(f"a sample has 1 entry or more, not {sample!r}")
    drawn = torch.rand(sample, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    where = (drawn + torch.arange(sample, dtype=torch.float64)) * (count / sample)
    return entries.index_select(0, where.long().clamp_(max=count - 1).to(entries.device))


def _histogram(entries: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of the magnitudes that occur, in increasing order, and the share of each; none if all are zero.

    A bin is an exponent and the first bits of a mantissa. Zeros are in the first, with the smallest magnitudes.
    """
    shift, bins = 23 - MANTISSA, 256 << MANTISSA
    counts = torch.zeros(bins, dtype=torch.int64, device=entries.device)
    for chunk in torch.split(entries, CHUNK):
        counts += torch.bincount(chunk.abs().view(torch.int32).bitwise_right_shift_(shift), minlength=bins)
    counts = counts.cpu()
    occupied = counts.nonzero().flatten()
    if int(occupied[-1]) >= 255 << MANTISSA:
        raise _not_finite()
    if int(occupied[-1]) == 0 and not bool(entries.any()):
        return torch.empty(0), torch.empty(0)
    centres = ((occupied << shift) + (1 << (shift - 1))).int().view(torch.float32)
    return centres.double().log(), counts[occupied].double() / entries.numel()


def _magnitude(beyond: Tensor, within: Tensor, shape: float) -> Tensor:
    """The magnitude that these shares are beyond and within, at scale 1: Newton's method for its logarithm.

    The logarithms of both shares are concave in it, so that steps from the one side do not overshoot; what does leave
    the bounds is bisected.
    """
    a, log_peak = _double(1 / shape), -math.lgamma(1 + 1 / shape)
    inner = within < 0.5  # solve for the share that is smaller
    target = torch.where(inner, within, beyond).log()
    low = within.log() - log_peak  # as no density is above that at the location
    high = torch.full_like(low, math.log(1000) / shape)  # beyond, there is less than 64 bits can tell
    x = torch.where(inner, low, torch.log(1 / shape - beyond.log()) / shape).clamp(low, high)
    for _ in range(100):
        power = torch.exp(shape * x)
        share = torch.where(inner, torch.special.gammainc(a, power), torch.special.gammaincc(a, power)).log()
        share = torch.where(inner & (power < TINY), x + log_peak, share)
        off = torch.where(inner, target - share, share - target)  # above 0 where x is too small
        low, high = torch.where(off > 0, x, low), torch.where(off < 0, x, high)
        slope = torch.exp(x + log_peak - power - share)
        step = off / slope
        close = step.abs() <= 1e-12 * (1 + x.abs())
        x = torch.where(close | ((x + step >= low) & (x + step <= high)), x + step, (low + high) / 2)
        if bool((close | (within == 0) | (beyond == 0)).all()):
            break
    return torch.where(within == 0, 0.0, torch.where(beyond == 0, math.inf, x.exp()))


def _lowest(function: Callable[[Tensor], Tensor], low: float, high: float, points: int = 24) -> float:
    """Where a function of a vector of numbers is lowest: looks at so many, goes closer twice, and takes a parabola."""
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


@lru_cache(maxsize=64)
def _grid_scales(values: tuple[float, ...]) -> tuple[list[float], list[float]]:
    """Logarithms of shapes, and of the best scales at a variance of 1: nearly straight lines join these."""
    if len(values) < 2 or any(a >= b for a, b in pairwise(values)) or not math.isfinite(sum(values)):
        raise ValueError(f"a grid is of two finite values or more that increase, not {values[:5]}")
    nodes = torch.linspace(math.log(LEAST_SHAPE), math.log(MOST_SHAPE), NODES, dtype=torch.float64).tolist()
    return nodes, [_best_log_scale(torch.tensor(values, dtype=torch.float64), math.exp(node)) for node in nodes]


def _best_log_scale(values: Tensor, shape: float) -> float:
    """Of scales that are about as good, the largest: on a floating-point grid, they are so octave after octave."""
    errors, top = _grid_errors(values, shape), math.log(values.abs().max().item())
    x = torch.arange(top - math.log(HEADROOM), top + math.log(30), COARSE, dtype=torch.float64)
    y = errors(x)
    dips = (y[1:-1] <= y[:-2]) & (y[1:-1] <= y[2:]) & (y[1:-1] <= 1.01 * y.min())
    best = 1 + int(dips.nonzero().max() if dips.any() else y[1:-1].argmin())
    return _lowest(errors, x[best - 1].item(), x[best + 1].item(), points=8)


def _grid_errors(values: Tensor, shape: float) -> Callable[[Tensor], Tensor]:
    """The mean square lost at each of several scales, in logarithms: exact integrals, at a variance of 1."""
    edges = (values[1:] + values[:-1]) / 2
    a, square = _double(1 / shape), _moment(2, shape)
    size = _moment(1, shape) / math.sqrt(square)

    def errors(log_scales: Tensor) -> Tensor:
        scales = log_scales.exp()[:, None]
        power = (edges.abs() / scales * math.sqrt(square)) ** shape
        below = (1 + edges.sign() * torch.special.gammainc(a, power)) / 2
        mean_below = -size * torch.special.gammaincc(2 * a, power) / 2
        none, all_of_it = torch.zeros_like(scales), torch.ones_like(scales)
        shares = torch.diff(below, prepend=none, append=all_of_it)
        means = torch.diff(mean_below, prepend=none, append=none)
        said = values / scales
        return 1 - (said * (2 * means - said * shares)).sum(1)

    return errors
