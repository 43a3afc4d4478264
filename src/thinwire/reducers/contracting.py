"""Reducers inside one that remembers what was not said."""

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
    """Whether it has to know the learning rate."""
    return any(getattr(part, "by_rate", False) for part in parts_of(method))


# Where their codecs are, and the reducers that they speak through.
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
    """The same with codecs that grow divided by what they grow by; ValueError for one that has no bound.

    Those of `Choose` are looked at when it has chosen.
    """
    inner = as_reducer(what)
    if goes_by_rate(inner):
        raise ValueError(f"{inner!r} goes by the learning rate: that is for the outermost feedback, not within {who}")
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
