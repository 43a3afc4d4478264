"""Checks that error feedback has contractions as codecs: with any other, the residual may grow without limit."""

import sys
import warnings
from pathlib import Path

from ..codecs import Shrink
from ..core import Codec, Reducer
from ..core.described import Described, parts_of
from .average import as_reducer

PACKAGE = str(Path(__file__).parents[1])
SIZES = (2, 1000, 10**6)  # tensor sizes for which the codec must be a contraction
MAY_FORCE = ("ErrorFeedback", "EF21", "Difference")
NO_BOUND = (
    "{who} adds the residual to each message. No bound is known for the error of {what!r}{why}: if the error is "
    "larger than the input, the residual grows without limit"
)
IN_CODEC = "A custom codec states its bound in bounds(size)"
IN_REDUCER = "A custom reducer has its codecs as fields of a dataclass, or states bounded = True"


def shrunk(who: str, codec: Codec, force: bool = False) -> Codec:
    """The codec, wrapped in `Shrink` if its output is larger than its input on average; ValueError without a bound."""
    known = [codec.bounds(size) for size in SIZES]
    if all(bounds.least is not None for bounds in known) and any(bounds.most != 1 for bounds in known):
        return Shrink(codec)
    if any(bounds.delta is None for bounds in known):
        _refuse(who, NO_BOUND.format(who=who, what=codec, why=" (no delta)"), IN_CODEC, force)
    return codec


def contracting(who: str, what: Codec | Reducer, force: bool = False) -> Reducer:
    """The reducer with each expanding codec wrapped in `Shrink`; ValueError where no bound of the error is known."""
    inner = as_reducer(what)
    if uses_learning_rate(inner):
        raise ValueError(
            f"{inner!r} uses the learning rate: only the outermost error feedback may, not one inside {who}"
        )
    return _contracting(who, inner, force)


def uses_learning_rate(method: Described) -> bool:
    """Whether the method needs the learning rate (a part of it has by_rate=True)."""
    return any(getattr(part, "by_rate", False) for part in parts_of(method))


def _contracting(who: str, inner: Reducer, force: bool) -> Reducer:
    if inner.bounded:
        return inner
    if not inner.inner_methods:
        _refuse(who, NO_BOUND.format(who=who, what=inner, why=""), IN_REDUCER, force)
    return inner.map_inner(
        lambda part: shrunk(who, part, force) if isinstance(part, Codec) else _contracting(who, part, force)
    )


def _refuse(who: str, problem: str, remedy: str, force: bool) -> None:
    if not force:
        forced = f"; {who}(..., force=True) accepts it anyway" if who in MAY_FORCE else ""
        raise ValueError(f"{problem}. {remedy}{forced}")
    warnings.warn(f"{problem}: watch the loss", stacklevel=_level_of_user())


def _level_of_user() -> int:
    """The stack level, seen from the caller, of the first frame that is neither the package's nor a dataclass's."""
    frame, level = sys._getframe(), 0
    while frame.f_back is not None and frame.f_code.co_filename.startswith((PACKAGE, "<string>")):
        frame, level = frame.f_back, level + 1
    return level
