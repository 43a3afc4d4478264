"""Strategies: what replicas talk about, and when."""

from .data_parallel import DataParallel

__all__ = ["DataParallel"]
