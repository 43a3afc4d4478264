"""The same method said otherwise: sharded, gathered, by way of a server, or past its warm-up."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from ..codecs import Identity, Nonzero
from ..core import Codec, Reducer
from ..core.described import Described
from .ada_comp import AdaComp
from .average import Average
from .choose import Choose, When
from .dgc import DGC
from .difference import Difference
from .ef21 import EF21
from .error_feedback import ErrorFeedback
from .leader_top_k import LeaderTopK
from .learned import Learned
from .lgc import LGC
from .lgc_server import LGCServer
from .server import Server
from .sharded import Sharded
from .warm_up import WarmUp

Kind = TypeVar("Kind", bound=Described)
NEVER = 10**9  # steps
INSIDE = WarmUp | Difference | EF21 | ErrorFeedback | When  # what has another method inside


def sharded(method: Kind) -> Kind:
    """The form in which every rank serves one shard: what a node carries stays flat as ranks are added."""

    def rule(what: Any) -> Any:
        codec = what.codec if isinstance(what, Average) else what
        return Sharded(codec, codec) if isinstance(codec, Codec) and not codec.linear else what

    rewritten: Kind = _rewritten(method, rule)
    return rewritten


def gathered(method: Kind) -> Kind:
    """The form in which every rank hears every other's whole message: one round, for few ranks."""
    rewritten: Kind = _rewritten(method, lambda what: Average(what.up) if isinstance(what, Sharded) else what)
    return rewritten


def served(method: Kind, rank: int | None = None, dedicated: bool | None = None) -> Kind:
    """The form in which all speak to one rank only, and it to them. What has a server keeps what is not given."""
    given: dict[str, Any] = {
        name: what for name, what in (("rank", rank), ("dedicated", dedicated)) if what is not None
    }

    def rule(what: Any) -> Any:
        match what:
            case Average():
                return Server(what.codec, what.codec, **given)
            case Codec():
                return Server(what, what, **given)
            case Sharded():
                return Server(what.up, what.down, **given)
            case LeaderTopK(values=LGC() as code):  # which has a form of its own for this
                return Server(replace(what, values=_with_server(code)), Nonzero(), **given)
            case LeaderTopK(values=Codec() as codec):
                return Server(what, codec, **given)
            case DGC(by=Reducer()):
                return what
            case AdaComp() | DGC():  # few entries of each rank; more of their sum, but far from all
                return Server(what, Nonzero(), **given)
            case Server():
                return replace(what, **given)
            case Reducer() if not isinstance(what, INSIDE | Choose):
                return Server(what, Identity(), **given)
        return what

    rewritten: Kind = _rewritten(method, rule)
    return rewritten


def _with_server(code: LGC) -> LGCServer:
    """The form of the same settings, but for what it keeps: a rank does not see what is made of its own values."""
    shared = {f.name: getattr(code, f.name) for f in fields(Learned) if f.name != "feedback"}
    return LGCServer(**shared, feedback="none" if code.feedback == "own" else code.feedback)


def settled(method: Kind) -> Kind:
    """What a method becomes after its warm-up steps."""

    def rule(what: Any) -> Any:
        while isinstance(what, WarmUp):
            what = what.then
        if isinstance(what, Server) and isinstance(what.up, Reducer):
            return replace(what, up=settled(what.up))
        if isinstance(what, LeaderTopK) and isinstance(what.values, Learned):
            return replace(what, values=replace(what.values, learning_steps=0, check_every=NEVER))
        return replace(what, ramp_steps=0) if isinstance(what, DGC) else what

    rewritten: Kind = _rewritten(method, rule)
    return rewritten


def _rewritten(what: Any, rule: Callable[[Any], Any]) -> Any:
    """Apply a rule to a method and to the methods inside it, from the outside in; codecs inside them stay."""
    what = rule(what)
    if isinstance(what, Choose):
        cases = [replace(case, then=_rewritten(case.then, rule)) for case in what.cases]
        return Choose(*cases, otherwise=_rewritten(what.otherwise, rule))
    if isinstance(what, DGC) and what.by is not None:
        return replace(what, by=_rewritten(what.by, rule))
    if isinstance(what, INSIDE) or hasattr(what, "reducer"):
        inner = {f.name: getattr(what, f.name) for f in fields(what) if isinstance(getattr(what, f.name), Described)}
        return replace(what, **{name: _rewritten(value, rule) for name, value in inner.items()})
    return what
