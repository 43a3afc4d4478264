from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Loop = TypeVar("Loop", bound=Callable[..., object])

# An entry for C is left out, and one for Python of what only loops call, as each takes time to compile.
OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


def compiled(liberties: frozenset[str] = frozenset()) -> Callable[[Loop], Loop]:
    """Without liberties, every product and sum is rounded by itself, in the order that is written."""

    def decorate(loop: Loop) -> Loop:
        options = OPTIONS | {"no_cpython_wrapper": loop.__name__.startswith("_")}
        return cast(Loop, numba.njit(fastmath=set(liberties), **options)(loop))

    return decorate


def inlined(loop: Loop) -> Loop:
    """For what loops call every few entries, and what so becomes part of them: a call takes dozens of cycles."""
    options = OPTIONS | {"no_cpython_wrapper": True, "forceinline": True}
    return cast(Loop, numba.njit(**options)(loop))
