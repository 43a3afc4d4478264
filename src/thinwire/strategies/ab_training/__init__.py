"""AB-training: layers whose weight may be a product of two low-rank factors, and models made of them."""

from .export import export, load_low_rank, smaller
from .factored_layers import FACTORED, Factored
from .factored_model import FactoredModel, LowRankLayer, decomposed
from .plain_layers import merged, thin

__all__ = [
    "FACTORED",
    "Factored",
    "FactoredModel",
    "LowRankLayer",
    "decomposed",
    "export",
    "load_low_rank",
    "merged",
    "smaller",
    "thin",
]
