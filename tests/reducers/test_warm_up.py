import pytest
import torch

from thinwire import Average, Cast, ErrorFeedback, PowerSGD, RandomK, TopK, WarmUp
from thinwire.core.lazy import materialize
from thinwire.core.states import plain, restored
from thinwire.extend import Reducer

from ..helpers import by_rank, parameter, same_bits, started, step


def codecs_said(reducer: Reducer, steps: int) -> list[list[str]]:
    """The codecs of each step's messages."""
    suited, states = started(reducer, torch.zeros(12, 20), 2)
    said = []
    for i in range(steps):
        held = step(suited, by_rank(2, 12, 20, seed=i), states)
        states = held.states
        said.append([repr(message.codec) for message in held.messages[0]])
    return said


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_it_hands_over_after_so_many_steps(steps: int) -> None:
    said = codecs_said(WarmUp(steps, TopK(0.1)), 5)
    assert said == [["Identity()"]] * steps + [["TopK(0.1)"]] * (5 - steps)


def test_what_comes_first_can_be_chosen() -> None:
    said = codecs_said(WarmUp(2, PowerSGD(1), first=Cast("float16")), 3)
    assert said == [["Cast('float16')"], ["Cast('float16')"], ["Identity()", "Identity()"]]


def test_until_then_the_outcome_is_the_mean() -> None:
    xs = by_rank(3, 12, 20)
    suited, states = started(WarmUp(1, TopK(0.1)), xs[0], 3)
    held = step(suited, xs, states)
    torch.testing.assert_close(held.reduced, torch.stack(xs).mean(0))


def test_what_comes_then_starts_afresh() -> None:
    after, then = WarmUp(2, ErrorFeedback(TopK(0.1))), ErrorFeedback(TopK(0.1))
    suited, states = started(after, torch.zeros(30), 2)
    for i in range(2):
        states = step(suited, by_rank(2, 30, seed=i), states).states
    xs = by_rank(2, 30, seed=9)
    fresh, first = started(then, torch.zeros(30), 2)
    assert same_bits(step(suited, xs, states).reduced, step(fresh, xs, first).reduced)


def test_steps_are_counted_up_to_the_handover_only() -> None:
    suited, states = started(WarmUp(2, TopK(0.1)), torch.zeros(30), 1)
    counts = []
    for i in range(4):
        states = step(suited, by_rank(1, 30, seed=i), states).states
        counts.append(states[0].step)
    assert counts == [1, 2, 2, 2]


def test_a_checkpoint_in_the_warm_up_goes_on_counting() -> None:
    suited, states = started(WarmUp(2, TopK(0.1)), torch.zeros(30), 1)
    states = step(suited, by_rank(1, 30), states).states
    copies = [restored(suited.init(torch.zeros(30), 7), plain(states[0]))]
    for expected in ("Identity()", "TopK(0.1)"):
        held = step(suited, by_rank(1, 30), copies)
        copies = held.states
        assert [repr(message.codec) for message in held.messages[0]] == [expected]


def test_where_nothing_would_change_there_is_nothing_to_wait_for() -> None:
    assert WarmUp(5, PowerSGD(1)).specialize(parameter(torch.zeros(7))) == Average()


def test_both_sides_are_suited_to_the_parameter() -> None:
    suited = WarmUp(5, PowerSGD(1), first=PowerSGD(2, least_ratio=5)).specialize(parameter(torch.zeros(12, 20)))
    assert suited == WarmUp(5, PowerSGD(1), first=Average())


def test_the_shape_matters_if_it_matters_at_any_time() -> None:
    assert WarmUp(5, PowerSGD(1)).needs_shape
    assert WarmUp(5, TopK(0.1), first=PowerSGD(1)).needs_shape
    assert not WarmUp(5, TopK(0.1)).needs_shape


def test_draws_of_the_two_sides_do_not_repeat_within_one() -> None:
    suited, states = started(WarmUp(2, RandomK(0.1), first=RandomK(0.5)), torch.zeros(30), 1)
    seeds = []
    for i in range(4):
        held = step(suited, by_rank(1, 30, seed=i), states)
        states = held.states
        seeds.append(held.messages[0][0].seed)
    assert seeds[0] != seeds[1]
    assert seeds[2] != seeds[3]


@pytest.mark.parametrize("steps", [-1, 1.5, "ten"])
def test_a_number_of_steps_that_is_none_is_refused(steps: object) -> None:
    with pytest.raises(ValueError, match=f"not {steps!r}"):
        WarmUp(steps, TopK(0.1))  # type: ignore[arg-type]


def test_something_that_is_no_method_is_refused() -> None:
    for arguments in ({"then": "topk"}, {"then": TopK(0.1), "first": None}):
        with pytest.raises(ValueError, match="codec or a reducer"):
            WarmUp(1, **arguments)  # type: ignore[arg-type]


def test_what_is_left_unsaid_is_that_of_whoever_speaks() -> None:
    suited, states = started(
        WarmUp(2, ErrorFeedback(TopK(0.1)), first=ErrorFeedback(RandomK(0.5), decay=0.5)), torch.zeros(30), 1
    )
    for i in range(3):
        states = step(suited, by_rank(1, 30, seed=i), states).states
        speaks = states[0].first if i == 0 else states[0].then
        assert suited.residual(states[0]) is speaks.residual
    assert materialize(speaks.residual).any()
    assert WarmUp(1, TopK(0.1)).residual(WarmUp(1, TopK(0.1)).init(torch.zeros(3), 0)) is None
