"""Fits of the generalized normal distribution."""

import math

import torch
from torch import Tensor

from .entries import CHUNK, centered, not_finite
from .generalized_normal import LEAST_SHAPE, MOST_SHAPE, GeneralizedNormal, check_shape, double, moment
from .search import lowest

SMALLEST = torch.finfo(torch.float32).tiny  # the smallest scale of a fit; division by it is safe in 32 bits
MANTISSA = 7  # mantissa bits of a bin: bins are 0.8 % wide, which is accurate enough for fits


def fit_by_moments(
    x: Tensor, *, location: float | None = 0.0, sample: int | None = None, zeros: bool = True
) -> GeneralizedNormal:
    """Fit the mean magnitude and the mean square of the entries (the method of moments): the fastest fit.

    It depends on the few largest entries: for thousands of entries with a small shape, its error is several percent
    larger than that of `fit_by_likelihood`. Arguments, and results for equal entries, are as for `fit_by_likelihood`.

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
    """Maximum-likelihood fit, of a given shape if there is one: 2 for normal, 1 for Laplace.

    `location` None takes the median: the likelihood of a shape below 1 has a peak at every entry, and the mean depends
    on the few largest. `sample` fits about that many entries, spread over the tensor, instead of all. `zeros` False
    leaves out entries that are 0: dead units give too many of them for any distribution, and the most likely shape
    would be the smallest, whatever the other entries are.
    Entries count as 32-bit numbers. If all are zero, the scale is the smallest possible and the shape, if not given, 1;
    if all have one magnitude, the shape is the largest. Raises ValueError if there are no entries, or if any is NaN or
    infinite.
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

    def negative_log_likelihood(log_shapes: Tensor) -> Tensor:
        inverse = torch.exp(-log_shapes)
        return torch.lgamma(1 + inverse) + log_scales(log_shapes) + inverse

    if shape is None:
        log_shape = lowest(negative_log_likelihood, math.log(LEAST_SHAPE), math.log(MOST_SHAPE))
        shape = min(max(math.exp(log_shape), LEAST_SHAPE), MOST_SHAPE)
    log_scale = log_scales(double(shape).log().reshape(1)).item() + largest
    return GeneralizedNormal(shape, max(math.exp(log_scale), SMALLEST), location)


def _histogram(entries: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of magnitudes (bin centers), in increasing order, and the share of each; empty if all are zero.

    A bin is an exponent and the first bits of the mantissa. Zeros are in the first bin, with the smallest magnitudes.
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
