"""The contract of reducers, checked for all of them."""

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


def after_steps(
    reducer: Reducer, ranks: int, steps: int = 2, shape: tuple[int, ...] = MATRIX
) -> tuple[Reducer, ReducerStep]:
    """A reducer after some steps, past its warm-up."""
    specialized, states = started(reducer, torch.zeros(shape), ranks)
    for i in range(steps):
        result = step(specialized, by_rank(ranks, *shape, seed=i), states)
        states = result.states
    return specialized, result


@every_reducer
def test_all_ranks_get_the_same_bits(reducer: Reducer) -> None:
    for ranks, shape in product(RANKS, SHAPES):
        specialized, states = started(reducer, torch.zeros(shape), ranks)
        for i in range(3):
            result = step(specialized, by_rank(ranks, *shape, seed=i), states)
            states = result.states
            for reply in result.replies:
                assert reply.reduced.shape == reply.sent.shape == torch.Size(shape)
                assert same_bits(reply.reduced, result.reduced), (ranks, shape)


@every_reducer
def test_an_empty_tensor_can_be_reduced(reducer: Reducer) -> None:
    # Layers without outputs exist; an error on one rank would stop all others.
    for shape in ((0,), (0, 3)):
        specialized, states = started(reducer, torch.zeros(shape), 2)
        assert step(specialized, by_rank(2, *shape), states).reduced.shape == torch.Size(shape)


@every_reducer
def test_half_and_double_precision_give_finite_results(reducer: Reducer) -> None:
    for dtype, shape in product((torch.float64, torch.float16, torch.bfloat16), (MATRIX, VECTOR)):
        specialized, states = started(reducer, torch.zeros(shape, dtype=dtype), 2)
        for i in range(3):
            result = step(specialized, by_rank(2, *shape, seed=i, dtype=dtype), states)
            states = result.states
            assert result.reduced.isfinite().all(), dtype
            assert result.reduced.abs().max() < 100, dtype


@every_reducer
def test_channels_last_gives_the_same_result(reducer: Reducer) -> None:
    xs = by_rank(2, 8, 4, 3, 3)
    specialized, states = started(reducer, xs[0], 2)
    expected = step(specialized, xs, states).reduced.clone()
    _, states = started(reducer, xs[0], 2)
    result = step(specialized, [x.to(memory_format=torch.channels_last) for x in xs], states)
    torch.testing.assert_close(result.reduced, expected)


@every_size
@pytest.mark.parametrize("reducer", LOSSLESS_REDUCERS, ids=repr)
def test_lossless_reducers_give_the_mean(reducer: Reducer, ranks: int) -> None:
    specialized, states = started(reducer, torch.zeros(MATRIX), ranks)
    for i in range(3):
        xs = by_rank(ranks, *MATRIX, seed=i)
        result = step(specialized, xs, states)
        states = result.states
        torch.testing.assert_close(result.reduced, torch.stack(xs).double().mean(0).float(), rtol=1e-6, atol=1e-6)
        for x, reply in zip(xs, result.replies, strict=True):
            assert same_bits(reply.sent, x)


@every_reducer
def test_the_input_is_not_modified(reducer: Reducer) -> None:
    specialized, result = after_steps(reducer, 2)
    xs = by_rank(2, *MATRIX, seed=9)
    before = [x.clone() for x in xs]
    step(specialized, xs, result.states)
    assert all(map(same_bits, xs, before))


@every_reducer
def test_the_given_state_is_not_modified(reducer: Reducer) -> None:
    # A failed step is repeated from the state before it.
    specialized, result = after_steps(reducer, 2)
    old, before = result.states, plain(tuple(result.states))
    xs = by_rank(2, *MATRIX, seed=9)
    first = step(specialized, xs, old)
    reduced, states = first.reduced.clone(), [plain(state) for state in first.states]
    assert same_bits(plain(tuple(old)), before)
    repeated = step(specialized, xs, old)
    assert same_bits(repeated.reduced, reduced)
    assert same_states(repeated.states, states)


@every_reducer
def test_a_step_dropped_because_of_nan_has_no_effect(reducer: Reducer) -> None:
    specialized, result = after_steps(reducer, 2)
    old = result.states
    good, bad = by_rank(2, *MATRIX, seed=9), by_rank(2, *MATRIX, seed=8)
    bad[1].fill_(math.nan)
    step(specialized, bad, old)
    after = step(specialized, good, old)
    assert after.reduced.isfinite().all()
    other, result = after_steps(reducer, 2)
    assert same_bits(after.reduced, step(other, good, result.states).reduced)


@every_reducer
def test_nan_on_one_rank_reaches_all(reducer: Reducer) -> None:
    ranks = 3
    for shape in (MATRIX, VECTOR):
        specialized, states = started(reducer, torch.zeros(shape), ranks)
        for i in range(3):  # initially, during warm-up, and after it
            for bad in (0, ranks - 1):
                xs = by_rank(ranks, *shape, seed=i)
                xs[bad].fill_(math.nan)
                assert all(reply.reduced.isnan().any() for reply in step(specialized, xs, states).replies)
            states = step(specialized, by_rank(ranks, *shape, seed=i), states).states


@every_reducer
def test_resuming_from_a_checkpoint_gives_the_same_bits(reducer: Reducer) -> None:
    for steps in (1, 2):  # left and right factors alternate: both must be restored
        specialized, result = after_steps(reducer, 2, steps)
        saved = through_a_file([plain(state) for state in result.states])
        likes = [specialized.init(torch.zeros(MATRIX), 7) for _ in saved]
        states, copies = result.states, [restored(like, state) for like, state in zip(likes, saved, strict=True)]
        assert same_states(states, copies)
        for i in range(3):
            xs = by_rank(2, *MATRIX, seed=20 + i)
            expected, resumed = step(specialized, xs, states), step(specialized, xs, copies)
            assert same_bits(expected.reduced, resumed.reduced)
            states, copies = expected.states, resumed.states
            assert same_states(states, copies)


@every_reducer
def test_the_global_generator_is_not_used(reducer: Reducer) -> None:
    before = torch.get_rng_state()
    after_steps(reducer, 2)
    assert torch.equal(torch.get_rng_state(), before)


@every_size
@pytest.mark.parametrize("reducer", FEEDBACK, ids=repr)
def test_sent_plus_residual_equals_the_sum_of_inputs(reducer: ErrorFeedback, ranks: int) -> None:
    specialized, states = started(reducer, torch.zeros(MATRIX), ranks)
    assert isinstance(specialized, ErrorFeedback)
    given = torch.zeros(ranks, *MATRIX, dtype=torch.float64)
    sent = torch.zeros_like(given)
    for i in range(12):
        xs = by_rank(ranks, *MATRIX, seed=i)
        result = step(specialized, xs, states)
        given += torch.stack(xs)
        sent += torch.stack([reply.sent for reply in result.replies])
        states = result.states
    residual = torch.stack([materialize(specialized.residual(state)) for state in states]).double()
    torch.testing.assert_close(sent + residual, given, rtol=0, atol=1e-4)
    if "RandomK" in repr(reducer) or "TopK" in repr(reducer):
        assert residual.abs().max() > 0.1, "without a residual, this test would pass without error feedback"


@every_reducer
def test_reading_the_residual_does_not_change_the_state(reducer: Reducer) -> None:
    specialized, states = started(reducer, torch.zeros(MATRIX), 2)
    for i in range(4):
        for state in states:
            before, residual = plain(state), specialized.residual(state)
            if residual is not None:
                assert math.isfinite(norm(residual))
                assert i or norm(residual) == 0, "the initial residual is zero"
            assert same_bits(plain(state), before)
        states = step(specialized, by_rank(2, *MATRIX, seed=i), states).states


def through_a_file(value: list[object]) -> list[Tensor]:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
