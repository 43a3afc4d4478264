"""Memory that kernels reuse from call to call: getting fresh pages costs more than filling them."""

import threading
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


class _Arrays(threading.local):
    def __init__(self) -> None:
        self.arrays: dict[tuple[str, type[np.generic]], NDArray[np.generic]] = {}


_local = _Arrays()


def scratch(name: str, size: int, dtype: type[Number]) -> NDArray[Number]:
    """An uninitialized array of this size; a thread gets the same memory again for the same name and dtype."""
    array = _local.arrays.get((name, dtype))
    if array is None or len(array) < size:
        array = _local.arrays[name, dtype] = np.empty(size, dtype)
    return array[:size]  # type: ignore[return-value]  # the key has the type
