"""Check and adapt the codecs inside a reducer with error feedback: each must be a contraction."""

from dataclasses import replace
from typing import Any

from ..core import Codec, Reducer
from ..core.described import Described, parts_of
from .average import Average, as_reducer
from .leader_top_k import LeaderTopK
from .power_iteration import PowerIteration
from .power_sgd import PowerSGD
from .server import Server
from .sharded import Sharded
from .shrinking import shrunk
from .warm_up import WarmUp


def goes_by_rate(method: Described) -> bool:
    """Whether the method needs the learning rate (a part of it has by_rate=True)."""
    return any(getattr(part, "by_rate", False) for part in parts_of(method))


# The fields of each reducer that have its codecs and inner reducers.
INSIDE: dict[type[Any], tuple[str, ...]] = {
    Average: ("codec",),
    WarmUp: ("first", "then"),
    LeaderTopK: ("values",),
    PowerIteration: ("codec",),
    PowerSGD: ("codec",),
    Server: ("up",),
    Sharded: ("up",),
}


def contracting(who: str, what: Codec | Reducer, force: bool = False) -> Reducer:
    """The reducer with each expanding codec wrapped in `Shrink`; ValueError for a codec without an error bound.

    The codecs of a `Choose` are checked after it has chosen one for a parameter.
    """
    inner = as_reducer(what)
    if goes_by_rate(inner):
        raise ValueError(
            f"{inner!r} uses the learning rate: only the outermost error feedback may, not one inside {who}"
        )
    return _contracting(who, inner, force)


def _contracting(who: str, inner: Any, force: bool) -> Reducer:
    changed = {}
    for name in INSIDE.get(type(inner), ()):
        part = getattr(inner, name)
        new = shrunk(who, part, force) if isinstance(part, Codec) else _contracting(who, part, force)
        if new != part:
            changed[name] = new
    made: Reducer = replace(inner, **changed) if changed else inner
    return made
