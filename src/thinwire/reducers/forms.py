"""Converts a method to another form: sharded, gathered, through a parameter server, or after its warm-up."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from ..codecs import Identity, Nonzero
from ..core import Codec, Reducer, Strategy
from ..core.described import Described
from .ada_comp import AdaComp
from .average import Average
from .dgc import DGC
from .leader_top_k import LeaderTopK
from .learned import Learned
from .lgc import LGC
from .lgc_server import LGCServer
from .server import Server
from .sharded import Sharded
from .warm_up import WarmUp
from .wrapping import Wrapping

Kind = TypeVar("Kind", bound=Described)
NEVER = 10**9  # steps


def sharded(method: Kind) -> Kind:
    """The form in which every rank is the server of one shard: bytes per rank do not grow with the world size."""

    def rule(what: Any) -> Any:
        codec = what.codec if isinstance(what, Average) else what
        return Sharded(codec, codec) if isinstance(codec, Codec) and not codec.linear else what

    rewritten: Kind = _rewritten(method, rule)
    return rewritten


def gathered(method: Kind) -> Kind:
    """The form with an all-gather: every rank receives the full message of every other. One round, for few ranks."""
    rewritten: Kind = _rewritten(method, lambda what: Average(what.up) if isinstance(what, Sharded) else what)
    return rewritten


def served(method: Kind, rank: int | None = None, dedicated: bool | None = None) -> Kind:
    """The form with a parameter server. A method that has a server keeps the settings that are not given."""
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
            case LeaderTopK(values=LGC() as code):  # LGC has its own form with a server
                return Server(replace(what, values=_with_server(code)), Nonzero(), **given)
            case LeaderTopK(values=Codec() as codec):
                return Server(what, codec, **given)
            case DGC(by=Reducer()):
                return what
            case AdaComp() | DGC():  # ranks send few entries; their sum has more, but is sparse
                return Server(what, Nonzero(), **given)
            case Server():
                return replace(what, **given)
            case Reducer() if not isinstance(what, Wrapping):
                return Server(what, Identity(), **given)
        return what

    rewritten: Kind = _rewritten(method, rule)
    return rewritten


def _with_server(code: LGC) -> LGCServer:
    """The same settings but for `feedback`: a rank does not see what the server decodes for its own values."""
    settings = {f.name: getattr(code, f.name) for f in fields(Learned) if f.name != "feedback"}
    return LGCServer(**settings, feedback="none" if code.feedback == "own" else code.feedback)


def settled(method: Kind) -> Kind:
    """The method as it is after its warm-up steps."""

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
    """Apply a rule to a method and to the methods inside it, from the outside in; the codecs inside a codec stay."""
    what = rule(what)
    if isinstance(what, Wrapping | Strategy):
        return what.map_inner(lambda inner: _rewritten(inner, rule))
    return what
