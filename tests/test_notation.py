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


def error_of(text: str) -> tuple[str, str]:
    """The first line of the error, and the text that its carets mark."""
    with pytest.raises(NotationError) as caught:
        parse(text)
    problem, shown, carets = str(caught.value).rsplit("\n", 2)
    assert shown.startswith("  ")
    assert set(carets) <= {" ", "^"}
    start, end = carets.index("^"), len(carets)
    return problem, shown[start:end]


def test_parse_inverts_repr() -> None:
    for value in EVERYTHING:
        assert parse(repr(value)) == value
        assert repr(parse(repr(value))) == repr(value)


@pytest.mark.parametrize(
    "text", ["a b", "a  b", "tab\tand\nline", "it's", 'say "so"', "back\\slash", "größe.*", "", " "]
)
def test_any_string_is_parsed_back(text: str) -> None:
    for value in (When(TopK(0.5), names=(text,)), Peers(text, ((0, 1.0),))):
        assert parse(repr(value)) == value


@pytest.mark.parametrize("number", [0.1, 1e-7, 1 / 3, 0.30000000000000004, 1.0])
def test_any_number_is_parsed_back(number: float) -> None:
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
def test_a_notation_may_have_python_whitespace_and_keywords(text: str, value: Any) -> None:
    assert parse(text) == value


def test_every_public_described_class_is_in_the_vocabulary() -> None:
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
    ("text", "problem", "marked"),
    [
        ("Topk(0.1)", "unknown name 'Topk' (did you mean TopK?)", "Topk"),
        (
            "ErrorFeedback(Chain(TopK(0.1), Quantise(8)))",
            "unknown name 'Quantise' (did you mean Quantize?)",
            "Quantise",
        ),
        ("Zzz(1)", "unknown name 'Zzz' (known: ", "Zzz"),
        ("TopK", "TopK needs parentheses: TopK(...)", "TopK"),
        ("ErrorFeedback(TopK)", "TopK needs parentheses", "TopK"),
        ("TopK(2.0)", "between 0 and 1", "TopK(2.0)"),
        ("ErrorFeedback(TopK(-0.5))", "between 0 and 1", "TopK(-0.5)"),
        ("ErrorFeedback(TopK('much'))", "TopK cannot take 'much'", "TopK('much')"),
        ("ErrorFeedback(TopK())", "missing 1 required positional argument: 'ratio'", "TopK()"),
        ("ErrorFeedback(TopK(0.1, 0.2))", "TopK takes 2 positional arguments but 3 were given", "TopK(0.1, 0.2)"),
        ("TopK(rate=0.1)", "unexpected keyword argument 'rate'", "TopK(rate=0.1)"),
        ("TopK(0.1, ratio=0.1)", "multiple values for argument 'ratio'", "TopK(0.1, ratio=0.1)"),
        ("Chain(Quantize(8), TopK(0.1))", "cannot follow", "Chain(Quantize(8), TopK(0.1))"),
        ("ErrorFeedback(0.5)", "codec or a reducer", "ErrorFeedback(0.5)"),
        ("ErrorFeedback(os.path)", "are allowed here", "os.path"),
        ("TopK(0.1).ratio", "are allowed here", "TopK(0.1).ratio"),
        ("TopK.__init__(0.1)", "are allowed here", "TopK.__init__(0.1)"),
        ("TopK(0.1)(0.2)", "are allowed here", "TopK(0.1)(0.2)"),
        ("(lambda: TopK(0.1))()", "are allowed here", "(lambda: TopK(0.1))()"),
        ("ErrorFeedback(lambda: 1)", "are allowed here", "lambda: 1"),
        ("Cast(f'float{16}')", "are allowed here", "f'float{16}'"),
        ("Cast(b'float16')", "are allowed here", "b'float16'"),
        ("TopK(1 / 10)", "are allowed here", "1 / 10"),
        ("TopK(1j)", "are allowed here", "1j"),
        ("TopK(...)", "are allowed here", "..."),
        ("TopK(not 1)", "are allowed here", "not 1"),
        ("TopK(--1)", "are allowed here", "--1"),
        ("TopK({0.1})", "are allowed here", "{0.1}"),
        ("TopK({'ratio': 0.1})", "are allowed here", "{'ratio': 0.1}"),
        ("TopK([x for x in (1,)][0])", "are allowed here", "[x for x in (1,)][0]"),
        ("TopK(0.1 if True else 1)", "are allowed here", "0.1 if True else 1"),
        ("TopK(x := 0.1)", "are allowed here", "x := 0.1"),
        ("TopK(*(0.1,))", "are allowed here", "*(0.1,)"),
        ("TopK(**{'ratio': 0.1})", "** is not allowed", "{'ratio': 0.1}"),
        ("ErrorFeedback(unknown)", "strings need quotes", "unknown"),
        ("__import__('os').system('true')", "are allowed here", "__import__('os').system('true')"),
        ("TopK(__import__('os'))", "unknown name '__import__'", "__import__"),
        ("TopK(open('/etc/passwd'))", "unknown name 'open'", "open"),
        ("eval('1')", "unknown name 'eval'", "eval"),
        ("Described()", "unknown name 'Described'", "Described"),
        ("Codec()", "unknown name 'Codec'", "Codec"),
        ("Topology()", "unknown name 'Topology'", "Topology"),
        ("Edges(((0, 1), (1, 1)))", "two different ranks", "Edges(((0, 1), (1, 1)))"),
    ],
)
def test_an_error_marks_its_position(text: str, problem: str, marked: str) -> None:
    message, position = error_of(text)
    assert problem in message
    assert position == marked


@pytest.mark.parametrize(
    ("text", "start"),
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
def test_a_syntax_error_is_marked_at_its_position(text: str, start: str) -> None:
    problem, marked = error_of(text)
    assert problem.startswith("not a notation")
    assert marked.startswith(start)


def test_the_caret_is_at_the_right_column_after_non_ascii_letters() -> None:
    assert error_of("Choose(When(Topk(0.1), names='größe'))")[1] == "Topk"
    assert error_of("Choose(When(names='größe', then=Topk(0.1)))")[1] == "Topk"


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
def test_deep_or_unusual_text_is_parsed_or_a_value_error(text: str) -> None:
    try:
        value = parse(text)
    except ValueError:  # NotationError is one
        return
    assert repr(value)


def test_a_notation_above_the_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match=f"{LONGEST + 1} characters; the limit is {LONGEST}"):
        parse("(" + "1" * LONGEST)


def test_the_weights_of_64_ranks_are_parsed_back() -> None:
    weights = Weights(tuple(tuple(1 / 64 + (-1) ** (i + j) / 777 for j in range(64)) for i in range(64)))
    assert len(repr(weights)) > LONGEST * 0.8
    assert parse(repr(weights)) == weights


def test_spaces_do_not_count_towards_the_limit() -> None:
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
def test_no_expression_is_evaluated(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(os, "system", lambda *_: called.append("system"))
    for name in ("eval", "exec", "open"):
        monkeypatch.setattr(builtins, name, lambda *_, name=name: called.append(name))
    with pytest.raises(NotationError):
        parse(text)
    monkeypatch.undo()
    assert not called
