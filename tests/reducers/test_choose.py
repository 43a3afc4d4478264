import pytest
import torch

from thinwire import Average, Cast, Choose, ErrorFeedback, PowerSGD, Quantize, Sign, TopK, WarmUp, When
from thinwire.extend import Parameter

from ..helpers import parameter


def described(name: str = "features.0.weight", kind: str = "conv", shape: tuple[int, ...] = (8, 4, 3, 3)) -> Parameter:
    return parameter(torch.empty(shape, device="meta"), name, kind)


@pytest.mark.parametrize(
    ("case", "matches"),
    [
        (When(TopK(0.1)), True),
        (When(TopK(0.1), kinds=("conv",)), True),
        (When(TopK(0.1), kinds="conv"), True),
        (When(TopK(0.1), kinds=("dense", "conv")), True),
        (When(TopK(0.1), kinds=("dense",)), False),
        (When(TopK(0.1), names=("features.*",)), True),
        (When(TopK(0.1), names="features.*"), True),
        (When(TopK(0.1), names=("*.bias", "*.weight")), True),
        (When(TopK(0.1), names=("Features.*",)), False),
        (When(TopK(0.1), names=("features",)), False),
        (When(TopK(0.1), names=("features.[1-9].*",)), False),
        (When(TopK(0.1), min_dim=4), True),
        (When(TopK(0.1), min_dim=5), False),
        (When(TopK(0.1), min_size=288), True),
        (When(TopK(0.1), min_size=289), False),
        (When(TopK(0.1), max_size=288), True),
        (When(TopK(0.1), max_size=287), False),
        (When(TopK(0.1), max_size=0), False),
        (When(TopK(0.1), kinds=("conv",), names=("classifier.*",)), False),
        (When(TopK(0.1), kinds=("conv",), names=("features.*",), min_dim=2, min_size=1, max_size=1000), True),
    ],
    ids=repr,
)
def test_a_parameter_must_satisfy_every_condition(case: When, matches: bool) -> None:
    assert case.matches(described()) == matches


def test_the_first_matching_case_is_used() -> None:
    choose = Choose(When(Sign(), kinds=("norm",)), When(TopK(0.1), min_dim=2), When(Quantize(8)))
    assert choose.specialize(described()) == Average(TopK(0.1))
    assert choose.specialize(described(kind="norm")) == Average(Sign())
    assert choose.specialize(described(shape=(5,))) == Average(Quantize(8))


def test_without_a_match_otherwise_is_used_or_the_parameter_is_uncompressed() -> None:
    assert Choose(When(Sign(), kinds=("norm",))).specialize(described()) == Average()
    assert Choose(When(Sign(), kinds=("norm",)), otherwise=Cast("float16")).specialize(described()) == Average(
        Cast("float16")
    )


def test_the_chosen_reducer_is_specialized_too() -> None:
    assert Choose(When(PowerSGD(1))).specialize(described(shape=(5,))) == Average()
    inner = Choose(When(Sign(), min_dim=2), otherwise=TopK(0.1))
    assert Choose(When(inner, kinds=("conv",))).specialize(described(shape=(5,))) == Average(TopK(0.1))
    assert Choose(When(ErrorFeedback(inner))).specialize(described()) == ErrorFeedback(Average(Sign()))
    assert Choose(When(WarmUp(3, inner))).specialize(described()) == WarmUp(3, Average(Sign()))


def test_choose_without_specialize_is_an_error() -> None:
    choose = Choose(When(Sign()))
    with pytest.raises(TypeError, match=r"specialize\(parameter\)"):
        choose.init(torch.zeros(3), 0)
    with pytest.raises(TypeError, match=r"specialize\(parameter\)"):
        choose.reduce(torch.zeros(3), None)


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: Choose(), "at least one When"),
        (lambda: Choose(TopK(0.1)), r"not TopK\(0.1\)"),
        (lambda: Choose(When(TopK(0.1)), otherwise="dense"), "codec or a reducer"),
        (lambda: When("topk"), "codec or a reducer"),
        (lambda: When(TopK(0.1), kinds=("convolution",)), "unknown kind of layer 'convolution'; known: conv, dense"),
    ],
)
def test_an_invalid_setting_is_an_error(build: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        build()  # type: ignore[operator]


def test_conditions_may_be_lists() -> None:
    assert When(TopK(0.1), kinds=["conv"], names=["a", "b"]) == When(TopK(0.1), kinds=("conv",), names=("a", "b"))  # type: ignore[arg-type]
