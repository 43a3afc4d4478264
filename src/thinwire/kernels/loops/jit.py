from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Loop = TypeVar("Loop", bound=Callable[..., object])

# No C wrapper, and no Python wrapper for functions that only loops call: each takes time to compile.
OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


def compiled(fastmath: frozenset[str] = frozenset()) -> Callable[[Loop], Loop]:
    """`fastmath` holds LLVM fast-math flags. Without any, operations are rounded one by one, in the written order."""

    def decorate(loop: Loop) -> Loop:
        options = OPTIONS | {"no_cpython_wrapper": loop.__name__.startswith("_")}
        return cast(Loop, numba.njit(fastmath=set(fastmath), **options)(loop))

    return decorate


def inlined(loop: Loop) -> Loop:
    """For functions that loops call every few entries: they are inlined, as a call takes dozens of cycles."""
    options = OPTIONS | {"no_cpython_wrapper": True, "forceinline": True}
    return cast(Loop, numba.njit(**options)(loop))
