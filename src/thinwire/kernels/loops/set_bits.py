"""The positions of set bits."""

import numpy as np
from numpy.typing import NDArray

from .jit import inlined
from .selection_vectors import lowest

ONE = np.uint64(1)


@inlined
def append_set_bits(hits: np.uint64, first: int, positions: NDArray[np.int64], count: int) -> int:
    """Append first + the index of each set bit; there must be room for WORD more. Returns the number of positions.

    Writes four positions at a time, however many bits are set: no processor can predict which bit is the next, so
    nothing may depend on it. Excess entries are overwritten.
    """
    while True:
        for _ in range(4):
            positions[np.uint64(count)] = first + lowest(hits)
            count += hits != 0
            hits &= hits - ONE
        if not hits:
            return count
