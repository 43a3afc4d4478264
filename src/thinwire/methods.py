"""Methods: objects, notations and short names, and the sharded, served, gathered and settled forms."""

import difflib
from collections.abc import Callable

from .core import Codec, Reducer, Strategy
from .notation import parse, vocabulary
from .reducers import forms
from .short_names import METHODS as METHODS
from .short_names import Method as Method
from .strategies import DataParallel

Built = Codec | Reducer | Strategy
MethodLike = str | Built  # a method, as users write it
SERVER = "server:"  # before a method: through a parameter server on rank 0


def strategy_of(method: MethodLike) -> Strategy:
    """The strategy for a method: an object, its notation or a short name. Codecs and reducers become `DataParallel`.

    Examples:
        >>> from thinwire import strategy_of
        >>> strategy_of("powersgd").gradient_averaging is None, strategy_of("choco").gradient_averaging is None
        (False, True)
    """
    method = _built(method)
    return method if isinstance(method, Strategy) else DataParallel(method)


def sharded(method: MethodLike) -> Codec | Reducer | Strategy:
    """The form in which every rank is the server of one shard: bytes per rank do not grow with the world size.

    Examples:
        >>> from thinwire import TopK, sharded
        >>> sharded(TopK(0.01))
        Sharded(TopK(0.01), TopK(0.01))
    """
    return _with_all(forms.sharded, _built(method))


def served(method: MethodLike, rank: int | None = None, dedicated: bool | None = None) -> Codec | Reducer | Strategy:
    """The form with a parameter server; as a notation, the prefix "server:".

    By default the server is rank 0 and trains like the others; a `dedicated` server has no gradients of its own.

    Examples:
        >>> from thinwire import Quantize, served
        >>> served(Quantize(8))
        Server(Quantize(8), Quantize(8))
    """
    built = _built(method)
    if isinstance(built, Strategy) and not built.mean_of_all:
        raise ValueError(f"{notation_of(built)} cannot use a parameter server: its reducers do not run over all ranks")
    return forms.served(built, rank, dedicated)


def gathered(method: MethodLike) -> Codec | Reducer | Strategy:
    """The form with an all-gather: every rank receives every full message. One round; for few ranks.

    Examples:
        >>> from thinwire import gathered
        >>> gathered("int8")
        ErrorFeedback(Average(Quantize(8)))
    """
    return _with_all(forms.gathered, _built(method))


def _with_all(rewritten: Callable[[Built], Built], method: Built) -> Built:
    """Rewrite a method; a strategy whose reducers do not run over all ranks is returned unchanged."""
    return method if isinstance(method, Strategy) and not method.mean_of_all else rewritten(method)


def settled(method: MethodLike) -> Codec | Reducer | Strategy:
    """The method that remains after warm-up.

    Examples:
        >>> from thinwire import Cast, WarmUp, settled
        >>> settled(WarmUp(100, Cast("float16")))
        Cast('float16')
    """
    built = forms.settled(_built(method))
    return built.settled() if isinstance(built, Strategy) else built


def notation_of(strategy: Strategy) -> str:
    """The shortest notation of a strategy.

    Examples:
        >>> from thinwire import notation_of, strategy_of
        >>> notation_of(strategy_of("fp16"))
        "Average(Cast('float16'))"
    """
    plain = isinstance(strategy, DataParallel) and strategy == DataParallel(strategy.reducer)
    return repr(strategy.reducer) if plain else repr(strategy)  # type: ignore[attr-defined]  # it is DataParallel then


def _built(method: MethodLike) -> Codec | Reducer | Strategy:
    if isinstance(method, str) and method.startswith(SERVER):
        return served(method.removeprefix(SERVER))
    if isinstance(method, str):
        return METHODS[method].built if method in METHODS else _parsed(method)
    if isinstance(method, Codec | Reducer | Strategy):
        return method
    raise ValueError(f"a method is a codec, a reducer, a strategy, its notation or a short name, not {method!r}")


def _parsed(text: str) -> Codec | Reducer | Strategy:
    if text.replace("-", "").replace("_", "").isalnum():
        near = difflib.get_close_matches(text.lower(), METHODS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(METHODS)}"
        if text in vocabulary():
            hint = f"with its settings: {text}(...)"
        raise ValueError(f"unknown method {text!r} ({hint})")
    built = parse(text)
    if not isinstance(built, Codec | Reducer | Strategy):
        raise ValueError(f"{text!r} describes {built!r}, which is not a method")
    return built
