"""Layers whose weight may be a product of two thin factors, and models that are made of them."""

from .export import export, load_low_rank, smaller
from .factored_layers import FACTORED, Factored
from .plain_layers import merged, thin
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
