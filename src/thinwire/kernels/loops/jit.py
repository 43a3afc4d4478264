from collections.abc import Callable
from typing import TypeVar, cast

import numba

Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(liberties: frozenset[str] = frozenset()) -> Callable[[Loop], Loop]:
    """Without liberties, every product and sum is rounded by itself, in the order that is written."""
    return cast(
        Callable[[Loop], Loop], numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=set(liberties))
    )
