"""Strategies: what replicas talk about, and when."""

from .data_parallel import DataParallel, Unit
from .layer import Layer

__all__ = ["DataParallel", "Layer", "Unit"]
