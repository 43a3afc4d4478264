"""Where bits are set, noted as places."""

import numpy as np
from numpy.typing import NDArray

from .jit import inlined
from .selection_vectors import lowest

ONE = np.uint64(1)


@inlined
def note(hits: np.uint64, first: int, places: NDArray[np.int64], count: int) -> int:
    """Append first + each bit that is set; there is room for WORD more. Returns how many places there are then.

    Four at a time, whether there are four or not: which bit is the next, no processor can guess, so nothing waits for
    it. What is noted too much is written over.
    """
    while True:
        for _ in range(4):
            places[np.uint64(count)] = first + lowest(hits)
            count += hits != 0
            hits &= hits - ONE
        if not hits:
            return count
