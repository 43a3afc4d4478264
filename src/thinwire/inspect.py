"""To look into a method or a training: bytes, layers, learned codes, servers, distributions of gradients."""

from .attach import check_momentum
from .core.described import parts_of
from .core.layer_report import Layer
from .core.outcome import Learning
from .distributions import GeneralizedNormal, fit_by_likelihood, fit_by_moments, kolmogorov, wasserstein
from .reducers import dedicated_servers, servers
from .strategies import check_placed
from .transports import Meter
from .wire.payload import Slot, layout

__all__ = [
    "GeneralizedNormal",
    "Layer",
    "Learning",
    "Meter",
    "Slot",
    "check_momentum",
    "check_placed",
    "dedicated_servers",
    "fit_by_likelihood",
    "fit_by_moments",
    "kolmogorov",
    "layout",
    "parts_of",
    "servers",
    "wasserstein",
]
