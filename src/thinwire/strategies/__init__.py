"""Strategies: what replicas talk about, and when."""

from .data_parallel import DataParallel
from .layer import Layer
from .units import Unit

__all__ = ["DataParallel", "Layer", "Unit"]
