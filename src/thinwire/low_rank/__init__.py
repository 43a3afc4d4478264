"""Layers whose weight may be a product of two thin factors, and models that are made of them."""

from .exported import export, load_low_rank, smaller
from .layers import FACTORED, Factored
from .plain import merged, thin
from .workshop import Thin, Workshop, decomposed

__all__ = [
    "FACTORED",
    "Factored",
    "Thin",
    "Workshop",
    "decomposed",
    "export",
    "load_low_rank",
    "merged",
    "smaller",
    "thin",
]
