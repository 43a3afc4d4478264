from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(liberties: frozenset[str] = frozenset()) -> Callable[[Loop], Loop]:
    """Without liberties, every product and sum is rounded by itself, in the order that is written.

    What nobody calls is left out, as it takes time to compile: an entry for C, and one for Python of private loops.
    """

    def decorate(loop: Loop) -> Loop:
        private = loop.__name__.startswith("_")
        options: dict[str, Any] = {"no_cfunc_wrapper": True, "no_cpython_wrapper": private, "error_model": "numpy"}
        return cast(Loop, numba.njit(nogil=True, cache=True, fastmath=set(liberties), **options)(loop))

    return decorate
