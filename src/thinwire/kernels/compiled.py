"""Decides where compiled loops are used. numba is imported, and a loop compiled, on first use."""

import warnings
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def loops_for(*tensors: Tensor, dtype: torch.dtype = torch.float32) -> ModuleType | None:
    """The compiled loops if they support these tensors and numba is available; None otherwise, for the torch twins."""
    for x in tensors:
        if x.dtype != dtype or not x.is_cpu or not x.is_contiguous():
            return None
    return _loops()


def loops_or_none() -> ModuleType | None:
    """The compiled loops for numpy arrays; None if numba is not available."""
    return _loops()


def vector(x: Tensor) -> NDArray[Any]:
    """The tensor's memory as a flat array."""
    numbers: NDArray[Any] = (x.detach() if x.requires_grad else x).numpy()
    return numbers.reshape(-1)


def array(x: Tensor) -> NDArray[np.float32]:
    """The tensor's memory as a matrix whose rows are its first dimension."""
    numbers: NDArray[np.float32] = (x.detach() if x.requires_grad else x).numpy()
    return numbers if numbers.ndim == 2 else numbers.reshape(len(numbers), -1)


@cache
def _loops() -> ModuleType | None:
    try:
        from . import loops
    except (ImportError, RuntimeError) as error:  # no numba, or no folder for its cache
        warnings.warn(f"thinwire runs without its compiled loops, which is slower: {error}", stacklevel=4)
        return None
    return loops
