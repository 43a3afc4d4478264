import builtins
import os
from inspect import isabstract
from typing import Any

import pytest

import thinwire
from thinwire import (
    Average,
    Chain,
    Choose,
    ErrorFeedback,
    NotationError,
    PowerSGD,
    Quantize,
    TopK,
    Weights,
    When,
    parse,
)
from thinwire.core.described import Described, parts_of
from thinwire.extend import Peers
from thinwire.methods import METHODS
from thinwire.notation import LONGEST, vocabulary

from .contracts.table import CODECS, OTHERS, REDUCERS, STRATEGIES, TOPOLOGIES

NAMED = [method.built for method in METHODS.values()]
EVERYTHING = (*CODECS, *REDUCERS, *STRATEGIES, *TOPOLOGIES, *OTHERS, *NAMED)


def refused(text: str) -> tuple[str, str]:
    """The first line of the error, and what its caret points at."""
    with pytest.raises(NotationError) as caught:
        parse(text)
    problem, shown, carets = str(caught.value).rsplit("\n", 2)
    assert shown.startswith("  ")
    assert set(carets) <= {" ", "^"}
    start, end = carets.index("^"), len(carets)
    return problem, shown[start:end]


def test_what_repr_says_is_read_back() -> None:
    for value in EVERYTHING:
        assert parse(repr(value)) == value
        assert repr(parse(repr(value))) == repr(value)


@pytest.mark.parametrize(
    "text", ["a b", "a  b", "tab\tand\nline", "it's", 'say "so"', "back\\slash", "größe.*", "", " "]
)
def test_any_text_is_read_back(text: str) -> None:
    for value in (When(TopK(0.5), names=(text,)), Peers(text, ((0, 1.0),))):
        assert parse(repr(value)) == value


@pytest.mark.parametrize("number", [0.1, 1e-7, 1 / 3, 0.30000000000000004, 1.0])
def test_any_number_is_read_back(number: float) -> None:
    assert parse(repr(TopK(number))) == TopK(number)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TopK(0.1)", TopK(0.1)),
        ("TopK(ratio=0.1)", TopK(0.1)),
        (" \n TopK(\n  0.1,\n)\n", TopK(0.1)),
        ("Quantize(8, True, block=64)", Quantize(8, stochastic=True, block=64)),
        ("Choose(When(PowerSGD(2), kinds=['conv', 'dense']))", Choose(When(PowerSGD(2), kinds=("conv", "dense")))),
        ("Choose(When(PowerSGD(2), kinds='conv'))", Choose(When(PowerSGD(2), kinds=("conv",)))),
        ("Peers('edge', ((0, 1), (1, -1)))", Peers("edge", ((0, 1), (1, -1)))),
    ],
)
def test_a_notation_may_be_written_as_python_is(text: str, value: Any) -> None:
    assert parse(text) == value


def test_every_public_description_has_a_name() -> None:
    described = {
        name
        for name in thinwire.__all__
        if isinstance(value := getattr(thinwire, name), type) and issubclass(value, Described) and not isabstract(value)
    }
    assert set(vocabulary()) == described


def test_parts_are_found_at_every_depth() -> None:
    inner = Chain(TopK(0.1), Quantize(8))
    outer = ErrorFeedback(Choose(When(inner, min_dim=2), otherwise=Average(Quantize(4))))
    assert {TopK(0.1), Quantize(8), Quantize(4), inner, outer} <= set(parts_of(outer))


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        ("Topk(0.1)", "unknown name 'Topk' (did you mean TopK?)", "Topk"),
        (
            "ErrorFeedback(Chain(TopK(0.1), Quantise(8)))",
            "unknown name 'Quantise' (did you mean Quantize?)",
            "Quantise",
        ),
        ("Zzz(1)", "unknown name 'Zzz' (known: ", "Zzz"),
        ("TopK", "TopK needs brackets: TopK(...)", "TopK"),
        ("ErrorFeedback(TopK)", "TopK needs brackets", "TopK"),
        ("TopK(2.0)", "between 0 and 1", "TopK(2.0)"),
        ("ErrorFeedback(TopK(-0.5))", "between 0 and 1", "TopK(-0.5)"),
        ("ErrorFeedback(TopK('much'))", "TopK cannot take 'much'", "TopK('much')"),
        ("ErrorFeedback(TopK())", "missing 1 required positional argument: 'ratio'", "TopK()"),
        ("ErrorFeedback(TopK(0.1, 0.2))", "TopK takes 2 positional arguments but 3 were given", "TopK(0.1, 0.2)"),
        ("TopK(rate=0.1)", "unexpected keyword argument 'rate'", "TopK(rate=0.1)"),
        ("TopK(0.1, ratio=0.1)", "multiple values for argument 'ratio'", "TopK(0.1, ratio=0.1)"),
        ("Chain(Quantize(8), TopK(0.1))", "cannot follow", "Chain(Quantize(8), TopK(0.1))"),
        ("ErrorFeedback(0.5)", "codec or a reducer", "ErrorFeedback(0.5)"),
        ("ErrorFeedback(os.path)", "may stand here", "os.path"),
        ("TopK(0.1).ratio", "may stand here", "TopK(0.1).ratio"),
        ("TopK.__init__(0.1)", "may stand here", "TopK.__init__(0.1)"),
        ("TopK(0.1)(0.2)", "may stand here", "TopK(0.1)(0.2)"),
        ("(lambda: TopK(0.1))()", "may stand here", "(lambda: TopK(0.1))()"),
        ("ErrorFeedback(lambda: 1)", "may stand here", "lambda: 1"),
        ("Cast(f'float{16}')", "may stand here", "f'float{16}'"),
        ("Cast(b'float16')", "may stand here", "b'float16'"),
        ("TopK(1 / 10)", "may stand here", "1 / 10"),
        ("TopK(1j)", "may stand here", "1j"),
        ("TopK(...)", "may stand here", "..."),
        ("TopK(not 1)", "may stand here", "not 1"),
        ("TopK(--1)", "may stand here", "--1"),
        ("TopK({0.1})", "may stand here", "{0.1}"),
        ("TopK({'ratio': 0.1})", "may stand here", "{'ratio': 0.1}"),
        ("TopK([x for x in (1,)][0])", "may stand here", "[x for x in (1,)][0]"),
        ("TopK(0.1 if True else 1)", "may stand here", "0.1 if True else 1"),
        ("TopK(x := 0.1)", "may stand here", "x := 0.1"),
        ("TopK(*(0.1,))", "may stand here", "*(0.1,)"),
        ("TopK(**{'ratio': 0.1})", "** has no place", "{'ratio': 0.1}"),
        ("ErrorFeedback(unknown)", "words stand in quotes", "unknown"),
        ("__import__('os').system('true')", "may stand here", "__import__('os').system('true')"),
        ("TopK(__import__('os'))", "unknown name '__import__'", "__import__"),
        ("TopK(open('/etc/passwd'))", "unknown name 'open'", "open"),
        ("eval('1')", "unknown name 'eval'", "eval"),
        ("Described()", "unknown name 'Described'", "Described"),
        ("Codec()", "unknown name 'Codec'", "Codec"),
        ("Topology()", "unknown name 'Topology'", "Topology"),
        ("Edges(((0, 1), (1, 1)))", "two different ranks", "Edges(((0, 1), (1, 1)))"),
    ],
)
def test_an_error_shows_the_place(text: str, problem: str, place: str) -> None:
    said, pointed = refused(text)
    assert problem in said
    assert pointed == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("TopK(0.1", "("),
        ("TopK(0.1))", ")"),
        ("TopK(0.1) TopK(0.1)", "T"),
        ("import os", "i"),
        ("TopK(0.1); 1", ";"),
        ("x = TopK(0.1)", "="),
        ("", ""),
    ],
)
def test_what_is_no_expression_is_refused_where_it_goes_wrong(text: str, place: str) -> None:
    problem, pointed = refused(text)
    assert problem.startswith("not a notation")
    assert pointed.startswith(place)


def test_the_caret_stands_where_it_should_after_letters_beyond_ascii() -> None:
    assert refused("Choose(When(Topk(0.1), names='größe'))")[1] == "Topk"
    assert refused("Choose(When(names='größe', then=Topk(0.1)))")[1] == "Topk"


@pytest.mark.parametrize(
    "text",
    [
        "ErrorFeedback(" * 90 + "TopK(0.1)" + ")" * 90,
        "ErrorFeedback(" * 199 + "TopK(0.1)" + ")" * 199,
        "ErrorFeedback(" * 1000 + "TopK(0.1)" + ")" * 1000,
        "ErrorFeedback(" * 9000 + "TopK(0.1)" + ")" * 9000,
        "(" * 4000 + "1" + ")" * 4000,
        "-" * 99_000 + "1",
        "not " * 30_000 + "1",
        "1" + "+1" * 49_000,
        "a" + ".a" * 49_000,
        "TopK" + "(1)" * 33_000,
        "[" * 150 + "]" * 150,
        "-" * 9000 + "1",
        "not " * 2000 + "1",
        "1" + "+1" * 4000,
        "a" + ".a" * 4000,
        "TopK" + "(1)" * 3000,
        "9" * 9000,
        "TopK(" + "9" * 9000 + ")",
        "TopK(\0)",
        "TopK('\ud800')",
        "\\",
    ],
    ids=lambda text: f"{text[:10]!r}...",
)
def test_what_is_deep_or_odd_is_read_or_refused_but_never_crashes(text: str) -> None:
    try:
        value = parse(text)
    except ValueError:  # NotationError is one
        return
    assert repr(value)


def test_what_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match=f"{LONGEST + 1} characters; at most {LONGEST}"):
        parse("(" + "1" * LONGEST)


def test_the_weights_of_64_ranks_are_read_back() -> None:
    mine = Weights(tuple(tuple(1 / 64 + (-1) ** (i + j) / 777 for j in range(64)) for i in range(64)))
    assert len(repr(mine)) > LONGEST * 0.8
    assert parse(repr(mine)) == mine


def test_spaces_that_do_not_count_do_not_make_a_notation_too_long() -> None:
    assert parse("TopK(" + " " * 2 * LONGEST + "0.1)") == TopK(0.1)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "TopK(__import__('os').system('true'))",
        "eval('__import__')",
        "exec('1')",
        "TopK(ratio=eval('0.1'))",
        "ErrorFeedback(open('x', 'w'))",
        "Chain(*__import__('os').environ)",
        "Cast(f'{__import__(0)}')",
        "(lambda: __import__('os').system('true'))()",
        "[__import__('os') for _ in (1,)]",
        "TopK.__class__.__base__.__subclasses__()",
    ],
)
def test_nothing_is_ever_evaluated(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(os, "system", lambda *_: called.append("system"))
    for name in ("eval", "exec", "open"):
        monkeypatch.setattr(builtins, name, lambda *_, name=name: called.append(name))
    with pytest.raises(NotationError):
        parse(text)
    monkeypatch.undo()
    assert not called
