"""Small floats on a scale that all agree on, and CO3, which is these with error feedback."""

import math

import pytest
import torch

from thinwire import ErrorFeedback, FittedFloat, MiniFloat, Quantize
from thinwire.methods import METHODS

from ..helpers import by_rank, random, started, step


def scales(states: list) -> set[float]:
    return {state.scale for state in states}


def test_all_ranks_round_on_the_same_scale_though_their_gradients_differ() -> None:
    xs = [random(2000, seed=rank) * 2.0**rank for rank in range(3)]
    reducer, states = started(FittedFloat(), xs[0], 3)
    held = step(reducer, xs, states)
    (scale,) = scales(held.states)
    alone = [scales(step(reducer, [x], started(FittedFloat(), x, 1)[1]).states).pop() for x in xs]
    # The middle one's, as the mean by ratio is; told in quarters of a doubling.
    assert scale == pytest.approx(alone[1], rel=0.2)


def test_what_is_sent_is_what_the_floats_make_of_it() -> None:
    x = random(1000)
    reducer, states = started(FittedFloat(coding=None), x, 1)
    held = step(reducer, [x], states)
    (scale,) = scales(held.states)
    floats = MiniFloat("fp4-121")
    parts = floats.encode((x * scale,), 0)
    assert torch.equal(held.replies[0].sent, floats.decode(parts, 0)[0] / scale)


def test_fits_are_made_often_at_first_and_then_every_so_many_steps() -> None:
    x = random(500)
    reducer, states = started(FittedFloat(refit=20), x, 2)
    fitted = []
    for i in range(45):
        held = step(reducer, [x, x], states)
        states = held.states
        if len(held.messages[0]) == 2:
            fitted.append(i)
    assert fitted == [0, 1, 2, 4, 8, 16, 20, 40]


def test_a_scale_follows_the_gradients() -> None:
    reducer, states = started(FittedFloat(refit=1), random(500), 2)
    held = step(reducer, by_rank(2, 500), states)
    later = step(reducer, [x / 1000 for x in by_rank(2, 500)], held.states)
    assert later.states[0].scale == pytest.approx(1000 * held.states[0].scale, rel=0.2)


def test_a_rank_without_a_gradient_has_no_vote_and_if_all_have_none_they_vote_again() -> None:
    zeros, x = torch.zeros(500), random(500)
    reducer, states = started(FittedFloat(refit=50), x, 2)
    nothing = step(reducer, [zeros, zeros], states)
    assert not nothing.reduced.any()
    for _ in range(5):
        nothing = step(reducer, [zeros, zeros], nothing.states)
    held = step(reducer, [zeros, x], nothing.states)
    assert len(held.messages[0]) == 2
    alone = step(reducer, [x], started(FittedFloat(), x, 1)[1])
    assert scales(held.states) == scales(alone.states)


@pytest.mark.parametrize("form", ["fp4-121", "fp8-152"])
@pytest.mark.parametrize(
    ("dtype", "size"),
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
def test_gradients_that_are_tiny_are_not_lost(form: str, dtype: torch.dtype, size: float) -> None:
    x = (random(2000, dtype=torch.float64) * size).to(dtype)
    reducer, states = started(FittedFloat(form, coding=None), x, 2)
    off = step(reducer, [x, x], states).reduced.double() - x.double()
    assert (off / size).norm() < 0.5 * (x.double() / size).norm()


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-44), (torch.float64, 1e-320)], ids=str)
def test_gradients_that_are_nearly_nothing_are_no_error(dtype: torch.dtype, size: float) -> None:
    x = (random(2000, dtype=torch.float64) * size).to(dtype)
    reducer, states = started(FittedFloat(), x, 2)
    assert step(reducer, [x, x], states).reduced.isfinite().all()


def test_nan_is_heard_and_the_scale_is_kept() -> None:
    x = random(500)
    reducer, states = started(FittedFloat(), x, 2)
    broken = x.clone()
    broken[7] = math.nan
    held = step(reducer, [x, broken], states)
    assert held.reduced[7].isnan()
    assert scales(held.states) == {1.0}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FittedFloat("fp4"), "not 'fp4'"),
        (lambda: FittedFloat(refit=0), "a refit of 1 step or more, not 0"),
        (lambda: FittedFloat(coding=Quantize(8)), r"such as Entropy\(\), not Quantize\(8\)"),
    ],
)
def test_settings_that_cannot_be_are_named(make, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=said):
        make()


def test_co3_finds_the_least_of_a_bowl() -> None:
    """Gradient descent on |w - goal|^2, where each rank has another goal, so that its gradients do not vanish."""
    goals = by_rank(4, 40, 50)
    best = torch.stack(goals).mean(0)
    method = METHODS["co3"].built
    reducer, states = started(method, best, 4)
    assert reducer == ErrorFeedback(FittedFloat("fp4-121"), decay=0.7)
    w = torch.zeros_like(best)
    for _ in range(150):
        held = step(reducer, [w - goal for goal in goals], states)
        states = held.states
        w = w - 0.1 * held.reduced
    assert (w - best).norm() < 0.1 * best.norm()


def test_co3_takes_under_three_and_a_half_bits_an_entry() -> None:
    xs = by_rank(2, 100, 200)
    reducer, states = started(METHODS["co3"].built, xs[0], 2)
    held = step(reducer, xs, states)
    meter = step(reducer, xs, held.states).meters[0]
    assert 8 * meter.payload_bytes / xs[0].numel() < 3.5
