"""The law that entries follow."""

import math

import torch
from torch import Tensor

from .entries import CHUNK, centered, not_finite
from .generalized_normal import LEAST_SHAPE, MOST_SHAPE, GeneralizedNormal, check_shape, double, moment
from .search import lowest

SMALLEST = torch.finfo(torch.float32).tiny  # the least scale of a fit: it can be divided by in 32 bits
MANTISSA = 7  # bits of it that tell magnitudes apart: bins are 0.8 % wide, and their centers tell all that fits need


def fit_by_moments(
    x: Tensor, *, location: float | None = 0.0, sample: int | None = None, zeros: bool = True
) -> GeneralizedNormal:
    """The law with the mean magnitude and the mean square of these entries: the fastest fit.

    It depends on the few largest entries: for thousands of entries of a small shape, it is off by several percent more
    than the likelihood's. The arguments, and what comes of entries that are all alike, are as in `fit_by_likelihood`.

    Examples:
        >>> import torch
        >>> from thinwire.inspect import fit_by_moments
        >>> x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
        >>> round(float(fit_by_moments(x).shape), 1)  # 2 is normal, 1 is Laplace's
        2.0
    """
    entries, location = centered(x, location, sample, zeros)
    size = square = 0.0
    for chunk in torch.split(entries, CHUNK):
        double = chunk.double()
        size += float(double.abs().sum())
        square += float(double.dot(double))
    if not math.isfinite(square):
        raise not_finite()
    if not size:
        return GeneralizedNormal(1.0, SMALLEST, location)
    mean, ratio = size / entries.numel(), square * entries.numel() / size**2
    low, high = math.log(LEAST_SHAPE), math.log(MOST_SHAPE)
    for _ in range(50):
        middle = (low + high) / 2
        shape = math.exp(middle)
        low, high = (middle, high) if moment(2, shape) / moment(1, shape) ** 2 > ratio else (low, middle)
    shape = min(max(math.exp(low), LEAST_SHAPE), MOST_SHAPE)
    return GeneralizedNormal(shape, max(mean / moment(1, shape), SMALLEST), location)


def fit_by_likelihood(
    x: Tensor,
    shape: float | None = None,
    *,
    location: float | None = 0.0,
    sample: int | None = None,
    zeros: bool = True,
) -> GeneralizedNormal:
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
        check_shape(shape)
    entries, location = centered(x, location, sample, zeros)
    logs, shares = _histogram(entries)
    if not logs.numel():
        return GeneralizedNormal(1.0 if shape is None else shape, SMALLEST, location)
    largest = logs[-1].item()
    logs -= largest  # so that no power of them overflows

    def log_scales(log_shapes: Tensor) -> Tensor:
        shapes = log_shapes.exp()
        return (log_shapes + (torch.outer(shapes, logs).exp_() @ shares).log()) / shapes

    def surprise(log_shapes: Tensor) -> Tensor:
        inverse = torch.exp(-log_shapes)
        return torch.lgamma(1 + inverse) + log_scales(log_shapes) + inverse

    if shape is None:
        log_shape = lowest(surprise, math.log(LEAST_SHAPE), math.log(MOST_SHAPE))
        shape = min(max(math.exp(log_shape), LEAST_SHAPE), MOST_SHAPE)
    log_scale = log_scales(double(shape).log().reshape(1)).item() + largest
    return GeneralizedNormal(shape, max(math.exp(log_scale), SMALLEST), location)


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
        raise not_finite()
    if int(occupied[-1]) == 0 and not bool(entries.any()):
        return torch.empty(0), torch.empty(0)
    centers = ((occupied << shift) + (1 << (shift - 1))).int().view(torch.float32)
    return centers.double().log(), counts[occupied].double() / entries.numel()
