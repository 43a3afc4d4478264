import pytest
import torch

from thinwire import Average, Cast, Chain, Choose, ErrorFeedback, Identity, PowerSGD, Quantize, Sign, TopK, WarmUp, When
from thinwire.core.lazy import materialize

from ..helpers import by_rank, parameter, random, same_bits, started, step


def test_what_was_left_unsaid_is_said_later() -> None:
    reducer = ErrorFeedback(TopK(0.5))  # one of two entries
    state = reducer.init(torch.zeros(2), 0)
    said = []
    for x in ([3.0, 2.0], [0.0, 0.0], [0.0, 0.0]):
        held = step(reducer, [torch.tensor(x)], [state])
        (state,) = held.states
        said.append(held.reduced.tolist())
    assert said == [[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize(("decay", "remembered"), [(1.0, 1.0), (0.5, 0.125), (0.1, 0.001)])
def test_decay_forgets_a_part_with_every_step(decay: float, remembered: float) -> None:
    reducer = ErrorFeedback(TopK(0.5), decay=decay)
    state = reducer.init(torch.zeros(2), 0)
    for first in (8.0, 8.0, 8.0, 8.0):  # always larger than what waits beside it
        held = step(reducer, [torch.tensor([first, 1.0 if materialize(state.residual).sum() == 0 else 0.0])], [state])
        (state,) = held.states
    assert materialize(state.residual).tolist() == pytest.approx([0.0, remembered])


def test_decay_follows_its_formula() -> None:
    reducer = ErrorFeedback(Sign(), decay=0.7)
    state = reducer.init(torch.zeros(9), 0)
    residual = torch.zeros(9)
    for seed in range(5):
        x = random(9, seed=seed)
        held = step(reducer, [x], [state])
        (state,) = held.states
        residual = x + 0.7 * residual - held.replies[0].sent
        torch.testing.assert_close(materialize(state.residual), residual)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_what_is_unsaid_is_remembered_in_more_than_16_bits(dtype: torch.dtype) -> None:
    # Added to a large entry in 16 bits, small remainders would be lost for good.
    reducer = ErrorFeedback(Cast("float16"))
    state = reducer.init(torch.zeros(1, dtype=dtype), 0)
    assert state.residual.total.dtype == torch.float32
    given = said = 0.0
    for i in range(100):
        x = torch.tensor([1.0 + i / 128], dtype=dtype)
        held = step(reducer, [x], [state])
        (state,) = held.states
        given, said = given + float(x), said + float(held.replies[0].sent)
    assert said + float(materialize(state.residual)) == pytest.approx(given, abs=1e-4)


def test_every_rank_remembers_what_it_has_not_said_itself() -> None:
    xs = by_rank(3, 30)
    suited, states = started(ErrorFeedback(TopK(0.1)), xs[0], 3)
    held = step(suited, xs, states)
    for x, reply, state in zip(xs, held.replies, held.states, strict=True):
        assert same_bits(materialize(state.residual), x - reply.sent)
        assert reply.sent.count_nonzero() == 3


@pytest.mark.parametrize("inner", [Average(), Identity(), Choose(When(TopK(0.1), min_dim=2))], ids=repr)
def test_what_is_sent_without_loss_needs_no_memory(inner: object) -> None:
    assert ErrorFeedback(inner).specialize(parameter(torch.zeros(5))) == Average()  # type: ignore[arg-type]


def test_the_shape_matters_if_it_matters_inside() -> None:
    assert ErrorFeedback(PowerSGD(1)).needs_shape
    assert not ErrorFeedback(TopK(0.1)).needs_shape


def test_feedback_keeps_its_decay_when_it_is_suited() -> None:
    reducer = ErrorFeedback(Choose(When(Sign(), min_dim=2), otherwise=TopK(0.5)), decay=0.5)
    assert reducer.specialize(parameter(torch.zeros(5))) == ErrorFeedback(Average(TopK(0.5)), decay=0.5)
    assert reducer.specialize(parameter(torch.zeros(5, 2))) == ErrorFeedback(Average(Sign()), decay=0.5)


def test_no_memory_is_taken_after_the_second_step() -> None:
    # Two buffers take turns: the new state is written where the one before the last was.
    reducer = ErrorFeedback(Chain(TopK(0.1), Quantize(8)))
    x = random(50)
    state = reducer.init(x, 0)
    places = []
    for _ in range(6):
        (state,) = step(reducer, [x], [state]).states
        places.append(state.residual.total.data_ptr())
    assert len(set(places)) == 2


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.5])
def test_a_decay_that_forgets_all_or_grows_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match=f"not {decay}"):
        ErrorFeedback(TopK(0.1), decay=decay)


def test_something_that_is_no_method_is_refused() -> None:
    with pytest.raises(ValueError, match="codec or a reducer"):
        ErrorFeedback("topk")  # type: ignore[arg-type]


def test_by_rate_the_learning_rate_is_within_what_is_remembered() -> None:
    """As the papers have it: what is compressed is what was left plus the rate times the gradient, and then applied."""
    reducer, size = ErrorFeedback(TopK(0.25), by_rate=True), 12
    state, x, expected, left = (
        reducer.init(torch.zeros(size), 0),
        torch.zeros(size),
        torch.zeros(size),
        torch.zeros(size),
    )
    for number, rate in enumerate((0.1, 0.2, 0.2, 0.05, 0.01, 0.01)):
        gradient = random(size, seed=number)
        held = step(reducer, [gradient], [reducer.at_rate(state, rate)])
        (state,) = held.states
        x = x - rate * held.reduced
        wanted = left + rate * gradient
        kept = wanted.abs().topk(3).indices
        said = torch.zeros(size).index_copy(0, kept, wanted[kept])
        left, expected = wanted - said, expected - said
        torch.testing.assert_close(x, expected)


def test_at_a_rate_of_zero_what_is_remembered_waits() -> None:
    reducer = ErrorFeedback(TopK(0.25), by_rate=True)
    held = step(reducer, [random(12)], [reducer.at_rate(reducer.init(torch.zeros(12), 0), 0.1)])
    (state,) = held.states
    idle = step(reducer, [random(12, seed=1)], [reducer.at_rate(state, 0.0)])
    assert not idle.reduced.any()
    halved = reducer.at_rate(idle.states[0], 0.2)
    torch.testing.assert_close(materialize(halved.residual), materialize(state.residual) / 2)
    assert step(reducer, [random(12, seed=2)], [halved]).reduced.any()


def test_a_warm_up_from_a_rate_of_zero_begins_with_nothing() -> None:
    reducer = ErrorFeedback(TopK(0.25), by_rate=True)
    held = step(reducer, [random(12)], [reducer.at_rate(reducer.init(torch.zeros(12), 0), 0.0)])
    assert not held.reduced.any()
    assert not materialize(held.states[0].residual).any()


def test_without_it_the_rate_does_not_matter() -> None:
    reducer = ErrorFeedback(TopK(0.25))
    state = reducer.init(torch.zeros(12), 0)
    held = step(reducer, [random(12)], [state])
    assert reducer.at_rate(held.states[0], 0.1) is held.states[0]


def test_a_warm_up_passes_the_rate_on() -> None:
    reducer = WarmUp(1, ErrorFeedback(TopK(0.25), by_rate=True))
    state = reducer.at_rate(reducer.init(torch.zeros(12), 0), 0.5)
    assert state.then.rate == 0.5
