"""Sparse additions; the twin is in kernels/sparse_tensor.py."""

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]


@compiled()
def add_to(total: Floats, where: Positions, values: Floats, weight: np.float32) -> None:
    """total[where] += weight * values"""
    for i in range(len(where)):
        total[where[i]] += weight * values[i]
