"""FittedFloat, small floats on a common scale, and CO3, which adds error feedback."""

import math

import pytest
import torch

from thinwire import ErrorFeedback, FittedFloat, MiniFloat, Quantize
from thinwire.methods import METHODS

from ..helpers import by_rank, random, started, step


def scales(states: list) -> set[float]:
    return {state.scale for state in states}


def test_all_ranks_use_the_same_scale() -> None:
    xs = [random(2000, seed=rank) * 2.0**rank for rank in range(3)]
    reducer, states = started(FittedFloat(), xs[0], 3)
    result = step(reducer, xs, states)
    (scale,) = scales(result.states)
    separate = [scales(step(reducer, [x], started(FittedFloat(), x, 1)[1]).states).pop() for x in xs]
    # The geometric mean, which is the middle one here; sent in steps of a quarter of a factor of two.
    assert scale == pytest.approx(separate[1], rel=0.2)


def test_sent_values_are_rounded_to_scaled_floats() -> None:
    x = random(1000)
    reducer, states = started(FittedFloat(coding=None), x, 1)
    result = step(reducer, [x], states)
    (scale,) = scales(result.states)
    floats = MiniFloat("fp4-121")
    parts = floats.encode((x * scale,), 0)
    assert torch.equal(result.replies[0].sent, floats.decode(parts, 0)[0] / scale)


def test_the_scale_is_fitted_often_at_first_and_then_every_refit_steps() -> None:
    x = random(500)
    reducer, states = started(FittedFloat(refit=20), x, 2)
    fitted = []
    for i in range(45):
        result = step(reducer, [x, x], states)
        states = result.states
        if len(result.messages[0]) == 2:
            fitted.append(i)
    assert fitted == [0, 1, 2, 4, 8, 16, 20, 40]


def test_the_scale_follows_the_gradients() -> None:
    reducer, states = started(FittedFloat(refit=1), random(500), 2)
    result = step(reducer, by_rank(2, 500), states)
    later = step(reducer, [x / 1000 for x in by_rank(2, 500)], result.states)
    assert later.states[0].scale == pytest.approx(1000 * result.states[0].scale, rel=0.2)


def test_zero_gradients_do_not_count_in_the_scale_and_all_zeros_fit_again() -> None:
    zeros, x = torch.zeros(500), random(500)
    reducer, states = started(FittedFloat(refit=50), x, 2)
    zero_step = step(reducer, [zeros, zeros], states)
    assert not zero_step.reduced.any()
    for _ in range(5):
        zero_step = step(reducer, [zeros, zeros], zero_step.states)
    result = step(reducer, [zeros, x], zero_step.states)
    assert len(result.messages[0]) == 2
    single = step(reducer, [x], started(FittedFloat(), x, 1)[1])
    assert scales(result.states) == scales(single.states)


@pytest.mark.parametrize("form", ["fp4-121", "fp8-152"])
@pytest.mark.parametrize(
    ("dtype", "magnitude"),
    [
        (torch.float16, 1e-6),
        (torch.bfloat16, 1e-6),
        (torch.bfloat16, 1e-37),
        (torch.float32, 1e-37),
        (torch.float32, 1e-30),
        (torch.float64, 1e-100),
    ],
    ids=str,
)
def test_tiny_gradients_do_not_underflow(form: str, dtype: torch.dtype, magnitude: float) -> None:
    x = (random(2000, dtype=torch.float64) * magnitude).to(dtype)
    reducer, states = started(FittedFloat(form, coding=None), x, 2)
    error = step(reducer, [x, x], states).reduced.double() - x.double()
    assert (error / magnitude).norm() < 0.5 * (x.double() / magnitude).norm()


@pytest.mark.parametrize(("dtype", "magnitude"), [(torch.float32, 1e-44), (torch.float64, 1e-320)], ids=str)
def test_denormal_gradients_give_finite_results(dtype: torch.dtype, magnitude: float) -> None:
    x = (random(2000, dtype=torch.float64) * magnitude).to(dtype)
    reducer, states = started(FittedFloat(), x, 2)
    assert step(reducer, [x, x], states).reduced.isfinite().all()


def test_nan_reaches_all_and_the_scale_is_kept() -> None:
    x = random(500)
    reducer, states = started(FittedFloat(), x, 2)
    broken = x.clone()
    broken[7] = math.nan
    result = step(reducer, [x, broken], states)
    assert result.reduced[7].isnan()
    assert scales(result.states) == {1.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FittedFloat("fp4"), "not 'fp4'"),
        (lambda: FittedFloat(refit=0), "a refit of 1 step or more, not 0"),
        (lambda: FittedFloat(coding=Quantize(8)), r"such as Entropy\(\), not Quantize\(8\)"),
    ],
)
def test_an_invalid_setting_is_an_error(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


def test_co3_converges_on_a_quadratic() -> None:
    """Gradient descent on |w - goal|^2, where each rank has another goal, so that its gradients do not vanish."""
    goals = by_rank(4, 40, 50)
    best = torch.stack(goals).mean(0)
    method = METHODS["co3"].built
    reducer, states = started(method, best, 4)
    assert reducer == ErrorFeedback(FittedFloat("fp4-121"), decay=0.7)
    w = torch.zeros_like(best)
    for _ in range(150):
        result = step(reducer, [w - goal for goal in goals], states)
        states = result.states
        w = w - 0.1 * result.reduced
    assert (w - best).norm() < 0.1 * best.norm()


def test_co3_takes_under_3_5_bits_per_entry() -> None:
    xs = by_rank(2, 100, 200)
    reducer, states = started(METHODS["co3"].built, xs[0], 2)
    result = step(reducer, xs, states)
    meter = step(reducer, xs, result.states).meters[0]
    assert 8 * meter.payload_bytes / xs[0].numel() < 3.5
