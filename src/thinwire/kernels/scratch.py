"""Memory that kernels write to in every call: to get fresh pages costs more than to fill them."""

import threading
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


class _Kept(threading.local):
    def __init__(self) -> None:
        self.arrays: dict[tuple[str, type[np.generic]], NDArray[np.generic]] = {}


_kept = _Kept()


def scratch(what: str, size: int, dtype: type[Number]) -> NDArray[Number]:
    """An array of this size, with anything in it; the same one when this thread asks for as much of the same again."""
    array = _kept.arrays.get((what, dtype))
    if array is None or len(array) < size:
        array = _kept.arrays[what, dtype] = np.empty(size, dtype)
    return array[:size]  # type: ignore[return-value]  # it was made of this type
