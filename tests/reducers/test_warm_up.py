import pytest
import torch

from thinwire import Average, Cast, ErrorFeedback, PowerSGD, RandomK, TopK, WarmUp
from thinwire.core.lazy import materialize
from thinwire.core.states import plain, restored
from thinwire.extend import Reducer

from ..helpers import by_rank, parameter, same_bits, started, step


def codecs_by_step(reducer: Reducer, steps: int) -> list[list[str]]:
    """The codecs of each step's messages."""
    specialized, states = started(reducer, torch.zeros(12, 20), 2)
    codecs = []
    for i in range(steps):
        result = step(specialized, by_rank(2, 12, 20, seed=i), states)
        states = result.states
        codecs.append([repr(message.codec) for message in result.messages[0]])
    return codecs


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_reducer_changes_after_the_given_number_of_steps(steps: int) -> None:
    codecs = codecs_by_step(WarmUp(steps, TopK(0.1)), 5)
    assert codecs == [["Identity()"]] * steps + [["TopK(0.1)"]] * (5 - steps)


def test_the_first_reducer_can_be_chosen() -> None:
    codecs = codecs_by_step(WarmUp(2, PowerSGD(1), first=Cast("float16")), 3)
    assert codecs == [["Cast('float16')"], ["Cast('float16')"], ["Identity()", "Identity()"]]


def test_during_warm_up_the_result_is_the_mean() -> None:
    xs = by_rank(3, 12, 20)
    specialized, states = started(WarmUp(1, TopK(0.1)), xs[0], 3)
    result = step(specialized, xs, states)
    torch.testing.assert_close(result.reduced, torch.stack(xs).mean(0))


def test_the_second_reducer_starts_with_its_initial_state() -> None:
    after, then = WarmUp(2, ErrorFeedback(TopK(0.1))), ErrorFeedback(TopK(0.1))
    specialized, states = started(after, torch.zeros(30), 2)
    for i in range(2):
        states = step(specialized, by_rank(2, 30, seed=i), states).states
    xs = by_rank(2, 30, seed=9)
    fresh, first = started(then, torch.zeros(30), 2)
    assert same_bits(step(specialized, xs, states).reduced, step(fresh, xs, first).reduced)


def test_steps_are_counted_during_warm_up_only() -> None:
    specialized, states = started(WarmUp(2, TopK(0.1)), torch.zeros(30), 1)
    counts = []
    for i in range(4):
        states = step(specialized, by_rank(1, 30, seed=i), states).states
        counts.append(states[0].step)
    assert counts == [1, 2, 2, 2]


def test_a_checkpoint_during_warm_up_resumes_the_count() -> None:
    specialized, states = started(WarmUp(2, TopK(0.1)), torch.zeros(30), 1)
    states = step(specialized, by_rank(1, 30), states).states
    copies = [restored(specialized.init(torch.zeros(30), 7), plain(states[0]))]
    for expected in ("Identity()", "TopK(0.1)"):
        result = step(specialized, by_rank(1, 30), copies)
        copies = result.states
        assert [repr(message.codec) for message in result.messages[0]] == [expected]


def test_equal_reducers_are_specialized_to_one_without_warm_up() -> None:
    assert WarmUp(5, PowerSGD(1)).specialize(parameter(torch.zeros(7))) == Average()


def test_both_reducers_are_specialized() -> None:
    specialized = WarmUp(5, PowerSGD(1), first=PowerSGD(2, least_ratio=5)).specialize(parameter(torch.zeros(12, 20)))
    assert specialized == WarmUp(5, PowerSGD(1), first=Average())


def test_needs_shape_if_either_reducer_does() -> None:
    assert WarmUp(5, PowerSGD(1)).needs_shape
    assert WarmUp(5, TopK(0.1), first=PowerSGD(1)).needs_shape
    assert not WarmUp(5, TopK(0.1)).needs_shape


def test_seeds_do_not_repeat_within_each_reducer() -> None:
    specialized, states = started(WarmUp(2, RandomK(0.1), first=RandomK(0.5)), torch.zeros(30), 1)
    seeds = []
    for i in range(4):
        result = step(specialized, by_rank(1, 30, seed=i), states)
        states = result.states
        seeds.append(result.messages[0][0].seed)
    assert seeds[0] != seeds[1]
    assert seeds[2] != seeds[3]


@pytest.mark.parametrize("steps", [-1, 1.5, "ten"])
def test_an_invalid_number_of_steps_is_an_error(steps: object) -> None:
    with pytest.raises(ValueError, match=f"not {steps!r}"):
        WarmUp(steps, TopK(0.1))  # type: ignore[arg-type]


def test_a_reducer_of_another_type_is_an_error() -> None:
    for arguments in ({"then": "topk"}, {"then": TopK(0.1), "first": None}):
        with pytest.raises(ValueError, match="codec or a reducer"):
            WarmUp(1, **arguments)  # type: ignore[arg-type]


def test_the_residual_is_that_of_the_active_reducer() -> None:
    specialized, states = started(
        WarmUp(2, ErrorFeedback(TopK(0.1)), first=ErrorFeedback(RandomK(0.5), decay=0.5)), torch.zeros(30), 1
    )
    for i in range(3):
        states = step(specialized, by_rank(1, 30, seed=i), states).states
        active = states[0].first if i == 0 else states[0].then
        assert specialized.residual(states[0]) is active.residual
    assert materialize(active.residual).any()
    assert WarmUp(1, TopK(0.1)).residual(WarmUp(1, TopK(0.1)).init(torch.zeros(3), 0)) is None
