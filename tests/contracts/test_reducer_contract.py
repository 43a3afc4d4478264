"""What every reducer promises, over the table of all of them."""

import io
import math
from itertools import product

import pytest
import torch
from torch import Tensor

from thinwire import ErrorFeedback
from thinwire.core.lazy import materialize, norm
from thinwire.core.states import plain, restored
from thinwire.extend import Reducer

from ..helpers import ReducerStep, by_rank, same_bits, same_states, started, step
from .table import FEEDBACK, LOSSLESS_REDUCERS, REDUCERS

RANKS = (1, 2, 3)
MATRIX, VECTOR = (12, 20), (41,)
SHAPES = (MATRIX, VECTOR, (6, 4, 3, 3), (1,), ())

every_reducer = pytest.mark.parametrize("reducer", REDUCERS, ids=repr)
every_size = pytest.mark.parametrize("ranks", RANKS)


def warmed(
    reducer: Reducer, ranks: int, steps: int = 2, shape: tuple[int, ...] = MATRIX
) -> tuple[Reducer, ReducerStep]:
    """A reducer that has been at work for some steps, past its warm-up."""
    suited, states = started(reducer, torch.zeros(shape), ranks)
    for i in range(steps):
        held = step(suited, by_rank(ranks, *shape, seed=i), states)
        states = held.states
    return suited, held


@every_reducer
def test_all_ranks_get_the_same_bits(reducer: Reducer) -> None:
    for ranks, shape in product(RANKS, SHAPES):
        suited, states = started(reducer, torch.zeros(shape), ranks)
        for i in range(3):
            held = step(suited, by_rank(ranks, *shape, seed=i), states)
            states = held.states
            for reply in held.replies:
                assert reply.reduced.shape == reply.sent.shape == torch.Size(shape)
                assert same_bits(reply.reduced, held.reduced), (ranks, shape)


@every_reducer
def test_an_empty_tensor_can_be_talked_about(reducer: Reducer) -> None:
    # Layers without outputs exist; a rank that could not talk about one would stop all the others.
    for shape in ((0,), (0, 3)):
        suited, states = started(reducer, torch.zeros(shape), 2)
        assert step(suited, by_rank(2, *shape), states).reduced.shape == torch.Size(shape)


@every_reducer
def test_half_and_double_precision_are_reduced_as_well(reducer: Reducer) -> None:
    for dtype, shape in product((torch.float64, torch.float16, torch.bfloat16), (MATRIX, VECTOR)):
        suited, states = started(reducer, torch.zeros(shape, dtype=dtype), 2)
        for i in range(3):
            held = step(suited, by_rank(2, *shape, seed=i, dtype=dtype), states)
            states = held.states
            assert held.reduced.isfinite().all(), dtype
            assert held.reduced.abs().max() < 100, dtype


@every_reducer
def test_channels_last_gives_what_any_other_layout_gives(reducer: Reducer) -> None:
    xs = by_rank(2, 8, 4, 3, 3)
    suited, states = started(reducer, xs[0], 2)
    expected = step(suited, xs, states).reduced.clone()
    _, states = started(reducer, xs[0], 2)
    held = step(suited, [x.to(memory_format=torch.channels_last) for x in xs], states)
    torch.testing.assert_close(held.reduced, expected)


@every_size
@pytest.mark.parametrize("reducer", LOSSLESS_REDUCERS, ids=repr)
def test_without_loss_the_outcome_is_the_mean(reducer: Reducer, ranks: int) -> None:
    suited, states = started(reducer, torch.zeros(MATRIX), ranks)
    for i in range(3):
        xs = by_rank(ranks, *MATRIX, seed=i)
        held = step(suited, xs, states)
        states = held.states
        torch.testing.assert_close(held.reduced, torch.stack(xs).double().mean(0).float(), rtol=1e-6, atol=1e-6)
        for x, reply in zip(xs, held.replies, strict=True):
            assert same_bits(reply.sent, x)


@every_reducer
def test_the_input_is_left_as_it_was(reducer: Reducer) -> None:
    suited, held = warmed(reducer, 2)
    xs = by_rank(2, *MATRIX, seed=9)
    before = [x.clone() for x in xs]
    step(suited, xs, held.states)
    assert all(map(same_bits, xs, before))


@every_reducer
def test_the_state_that_was_given_stays_valid(reducer: Reducer) -> None:
    # A step that fails is done again from the state before it.
    suited, held = warmed(reducer, 2)
    old, before = held.states, plain(tuple(held.states))
    xs = by_rank(2, *MATRIX, seed=9)
    first = step(suited, xs, old)
    reduced, states = first.reduced.clone(), [plain(state) for state in first.states]
    assert same_bits(plain(tuple(old)), before)
    again = step(suited, xs, old)
    assert same_bits(again.reduced, reduced)
    assert same_states(again.states, states)


@every_reducer
def test_nothing_is_left_of_a_step_that_was_lost_to_nan(reducer: Reducer) -> None:
    suited, held = warmed(reducer, 2)
    old = held.states
    good, bad = by_rank(2, *MATRIX, seed=9), by_rank(2, *MATRIX, seed=8)
    bad[1].fill_(math.nan)
    step(suited, bad, old)
    after = step(suited, good, old)
    assert after.reduced.isfinite().all()
    other, held = warmed(reducer, 2)
    assert same_bits(after.reduced, step(other, good, held.states).reduced)


@every_reducer
def test_nan_on_one_rank_is_heard_by_all(reducer: Reducer) -> None:
    ranks = 3
    for shape in (MATRIX, VECTOR):
        suited, states = started(reducer, torch.zeros(shape), ranks)
        for i in range(3):  # afresh, in the warm-up, and past it
            for bad in (0, ranks - 1):
                xs = by_rank(ranks, *shape, seed=i)
                xs[bad].fill_(math.nan)
                assert all(reply.reduced.isnan().any() for reply in step(suited, xs, states).replies)
            states = step(suited, by_rank(ranks, *shape, seed=i), states).states


@every_reducer
def test_a_checkpoint_goes_on_to_the_bit(reducer: Reducer) -> None:
    for steps in (1, 2):  # left and right factors take turns: both have to survive
        suited, held = warmed(reducer, 2, steps)
        saved = through_a_file([plain(state) for state in held.states])
        likes = [suited.init(torch.zeros(MATRIX), 7) for _ in saved]
        states, copies = held.states, [restored(like, state) for like, state in zip(likes, saved, strict=True)]
        assert same_states(states, copies)
        for i in range(3):
            xs = by_rank(2, *MATRIX, seed=20 + i)
            mine, theirs = step(suited, xs, states), step(suited, xs, copies)
            assert same_bits(mine.reduced, theirs.reduced)
            states, copies = mine.states, theirs.states
            assert same_states(states, copies)


@every_reducer
def test_the_global_generator_is_left_alone(reducer: Reducer) -> None:
    before = torch.get_rng_state()
    warmed(reducer, 2)
    assert torch.equal(torch.get_rng_state(), before)


@every_size
@pytest.mark.parametrize("reducer", FEEDBACK, ids=repr)
def test_feedback_loses_nothing_what_is_not_said_is_remembered(reducer: ErrorFeedback, ranks: int) -> None:
    suited, states = started(reducer, torch.zeros(MATRIX), ranks)
    assert isinstance(suited, ErrorFeedback)
    given = torch.zeros(ranks, *MATRIX, dtype=torch.float64)
    said = torch.zeros_like(given)
    for i in range(12):
        xs = by_rank(ranks, *MATRIX, seed=i)
        held = step(suited, xs, states)
        given += torch.stack(xs)
        said += torch.stack([reply.sent for reply in held.replies])
        states = held.states
    unsaid = torch.stack([materialize(suited.residual(state)) for state in states]).double()
    torch.testing.assert_close(said + unsaid, given, rtol=0, atol=1e-4)
    if "RandomK" in repr(reducer) or "TopK" in repr(reducer):
        assert unsaid.abs().max() > 0.1, "nothing was left unsaid: this test would pass without feedback"


@every_reducer
def test_what_is_left_unsaid_can_be_asked_for_at_any_time(reducer: Reducer) -> None:
    suited, states = started(reducer, torch.zeros(MATRIX), 2)
    for i in range(4):
        for state in states:
            before, unsaid = plain(state), suited.residual(state)
            if unsaid is not None:
                assert math.isfinite(norm(unsaid))
                assert i or norm(unsaid) == 0, "nothing was given yet"
            assert same_bits(plain(state), before)
        states = step(suited, by_rank(2, *MATRIX, seed=i), states).states


def through_a_file(value: list[object]) -> list[Tensor]:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
