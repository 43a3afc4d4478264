"""Strategies: what replicas talk about, and when."""

from .data_parallel import DataParallel, Unit

__all__ = ["DataParallel", "Unit"]
