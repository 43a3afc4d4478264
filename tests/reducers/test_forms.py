import pytest

from thinwire import (
    After,
    Average,
    Cast,
    Choose,
    DataParallel,
    Feedback,
    Identity,
    Momentum,
    PowerSGD,
    Quantize,
    Sharded,
    Sign,
    TopK,
    When,
    gathered,
    settled,
    sharded,
)
from thinwire.methods import METHODS


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (TopK(0.1), Sharded(TopK(0.1), TopK(0.1))),
        (Average(Quantize(8)), Sharded(Quantize(8), Quantize(8))),
        (Feedback(Sign()), Feedback(Sharded(Sign(), Sign()))),
        (Feedback(Sign(), decay=0.5), Feedback(Sharded(Sign(), Sign()), decay=0.5)),
        (DataParallel(Sign(), fuse_below=7), DataParallel(Sharded(Sign(), Sign()), fuse_below=7)),
        (Average(), Average()),
        (Cast("float16"), Cast("float16")),
        (Feedback(PowerSGD(2)), Feedback(PowerSGD(2))),
        (PowerSGD(2, codec=Quantize(8)), PowerSGD(2, codec=Quantize(8))),
        (After(3, Sign()), After(3, Sharded(Sign(), Sign()))),
        (
            Choose(When(Sign(), min_dim=2), otherwise=Cast("float16")),
            Choose(When(Sharded(Sign(), Sign()), min_dim=2), otherwise=Cast("float16")),
        ),
    ],
    ids=repr,
)
def test_what_is_not_linear_is_sharded_and_the_rest_stays(method: object, form: object) -> None:
    assert sharded(method) == form  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (Sharded(Quantize(8), Quantize(4)), Average(Quantize(8))),
        (Feedback(Sharded(Sign(), Sign())), Feedback(Average(Sign()))),
        (After(3, Sharded(Sign(), Sign())), After(3, Average(Sign()))),
        (Feedback(TopK(0.1)), Feedback(TopK(0.1))),
    ],
    ids=repr,
)
def test_what_is_sharded_can_be_gathered(method: object, form: object) -> None:
    assert gathered(method) == form  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("method", "form"),
    [
        (After(3, Sign()), Sign()),
        (Feedback(After(3, Sign())), Feedback(Sign())),
        (After(3, After(4, Sign())), Sign()),
        (After(3, Feedback(After(4, Sign()))), Feedback(Sign())),
        (DataParallel(After(3, Sign())), DataParallel(Sign())),
        (Momentum(0.01, ramp_steps=50, clip=2.0), Momentum(0.01, clip=2.0)),
        (After(3, Choose(When(Momentum(ramp_steps=9), min_dim=2))), Choose(When(Momentum(), min_dim=2))),
        (Average(Identity()), Average()),
    ],
    ids=repr,
)
def test_a_warm_up_is_over_at_some_time(method: object, form: object) -> None:
    assert settled(method) == form  # type: ignore[type-var]


@pytest.mark.parametrize("name", METHODS)
def test_sharding_and_gathering_undo_each_other(name: str) -> None:
    method = METHODS[name].built
    assert sharded(gathered(sharded(method))) == sharded(method)
