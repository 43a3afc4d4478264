"""The generalized normal distribution, fits of it to gradients, and the best scale for rounding to few values."""

from .distances import kolmogorov, wasserstein
from .fits import SMALLEST, fit_by_likelihood, fit_by_moments
from .generalized_normal import LEAST_SHAPE, MOST_SHAPE, GeneralizedNormal
from .rounding import grid_error, grid_scale

__all__ = [
    "LEAST_SHAPE",
    "MOST_SHAPE",
    "SMALLEST",
    "GeneralizedNormal",
    "fit_by_likelihood",
    "fit_by_moments",
    "grid_error",
    "grid_scale",
    "kolmogorov",
    "wasserstein",
]
