"""What gradients look like: the generalized normal law, fits of it, and the scale at which few values serve it best."""

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
