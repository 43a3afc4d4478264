import pytest
import torch

from thinwire import Average, Cast, Chain, Choose, ErrorFeedback, Identity, PowerSGD, Quantize, Sign, TopK, WarmUp, When
from thinwire.core.lazy import materialize

from ..helpers import by_rank, parameter, random, same_bits, started, step


def test_the_residual_is_sent_later() -> None:
    reducer = ErrorFeedback(TopK(0.5))  # one of two entries
    state = reducer.init(torch.zeros(2), 0)
    reduced = []
    for x in ([3.0, 2.0], [0.0, 0.0], [0.0, 0.0]):
        result = step(reducer, [torch.tensor(x)], [state])
        (state,) = result.states
        reduced.append(result.reduced.tolist())
    assert reduced == [[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize(("decay", "residual"), [(1.0, 1.0), (0.5, 0.125), (0.1, 0.001)])
def test_the_residual_decays_with_every_step(decay: float, residual: float) -> None:
    reducer = ErrorFeedback(TopK(0.5), decay=decay)
    state = reducer.init(torch.zeros(2), 0)
    for first in (8.0, 8.0, 8.0, 8.0):  # always larger than the residual of the other entry
        result = step(reducer, [torch.tensor([first, 1.0 if materialize(state.residual).sum() == 0 else 0.0])], [state])
        (state,) = result.states
    assert materialize(state.residual).tolist() == pytest.approx([0.0, residual])


def test_decay_follows_its_formula() -> None:
    reducer = ErrorFeedback(Sign(), decay=0.7)
    state = reducer.init(torch.zeros(9), 0)
    residual = torch.zeros(9)
    for seed in range(5):
        x = random(9, seed=seed)
        result = step(reducer, [x], [state])
        (state,) = result.states
        residual = x + 0.7 * residual - result.replies[0].sent
        torch.testing.assert_close(materialize(state.residual), residual)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_residual_is_kept_in_32_bits(dtype: torch.dtype) -> None:
    # In 16 bits, small residuals added to a large entry would be rounded away.
    reducer = ErrorFeedback(Cast("float16"))
    state = reducer.init(torch.zeros(1, dtype=dtype), 0)
    assert state.residual.total.dtype == torch.float32
    given = sent = 0.0
    for i in range(100):
        x = torch.tensor([1.0 + i / 128], dtype=dtype)
        result = step(reducer, [x], [state])
        (state,) = result.states
        given, sent = given + float(x), sent + float(result.replies[0].sent)
    assert sent + float(materialize(state.residual)) == pytest.approx(given, abs=1e-4)


def test_every_rank_keeps_its_own_residual() -> None:
    xs = by_rank(3, 30)
    specialized, states = started(ErrorFeedback(TopK(0.1)), xs[0], 3)
    result = step(specialized, xs, states)
    for x, reply, state in zip(xs, result.replies, result.states, strict=True):
        assert same_bits(materialize(state.residual), x - reply.sent)
        assert reply.sent.count_nonzero() == 3


@pytest.mark.parametrize("inner", [Average(), Identity(), Choose(When(TopK(0.1), min_dim=2))], ids=repr)
def test_a_lossless_reducer_is_specialized_to_average(inner: object) -> None:
    assert ErrorFeedback(inner).specialize(parameter(torch.zeros(5))) == Average()  # type: ignore[arg-type]


def test_needs_shape_if_the_inner_reducer_does() -> None:
    assert ErrorFeedback(PowerSGD(1)).needs_shape
    assert not ErrorFeedback(TopK(0.1)).needs_shape


def test_specialize_keeps_the_decay() -> None:
    reducer = ErrorFeedback(Choose(When(Sign(), min_dim=2), otherwise=TopK(0.5)), decay=0.5)
    assert reducer.specialize(parameter(torch.zeros(5))) == ErrorFeedback(Average(TopK(0.5)), decay=0.5)
    assert reducer.specialize(parameter(torch.zeros(5, 2))) == ErrorFeedback(Average(Sign()), decay=0.5)


def test_no_memory_is_allocated_after_the_second_step() -> None:
    # Two buffers alternate: the new state is written into the buffer of the state before the last.
    reducer = ErrorFeedback(Chain(TopK(0.1), Quantize(8)))
    x = random(50)
    state = reducer.init(x, 0)
    addresses = []
    for _ in range(6):
        (state,) = step(reducer, [x], [state]).states
        addresses.append(state.residual.total.data_ptr())
    assert len(set(addresses)) == 2


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.5])
def test_an_invalid_decay_is_an_error(decay: float) -> None:
    with pytest.raises(ValueError, match=f"not {decay}"):
        ErrorFeedback(TopK(0.1), decay=decay)


def test_a_reducer_of_another_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="codec or a reducer"):
        ErrorFeedback("topk")  # type: ignore[arg-type]


def test_by_rate_the_residual_is_in_units_of_parameters() -> None:
    """As in the papers: the residual plus the rate times the gradient is compressed, and the result is applied."""
    reducer, size = ErrorFeedback(TopK(0.25), by_rate=True), 12
    state, x, expected, residual = (
        reducer.init(torch.zeros(size), 0),
        torch.zeros(size),
        torch.zeros(size),
        torch.zeros(size),
    )
    for number, rate in enumerate((0.1, 0.2, 0.2, 0.05, 0.01, 0.01)):
        gradient = random(size, seed=number)
        result = step(reducer, [gradient], [reducer.at_rate(state, rate)])
        (state,) = result.states
        x = x - rate * result.reduced
        total = residual + rate * gradient
        kept = total.abs().topk(3).indices
        sent = torch.zeros(size).index_copy(0, kept, total[kept])
        residual, expected = total - sent, expected - sent
        torch.testing.assert_close(x, expected)


def test_at_a_rate_of_0_the_residual_does_not_change() -> None:
    reducer = ErrorFeedback(TopK(0.25), by_rate=True)
    result = step(reducer, [random(12)], [reducer.at_rate(reducer.init(torch.zeros(12), 0), 0.1)])
    (state,) = result.states
    idle = step(reducer, [random(12, seed=1)], [reducer.at_rate(state, 0.0)])
    assert not idle.reduced.any()
    halved = reducer.at_rate(idle.states[0], 0.2)
    torch.testing.assert_close(materialize(halved.residual), materialize(state.residual) / 2)
    assert step(reducer, [random(12, seed=2)], [halved]).reduced.any()


def test_an_initial_rate_of_0_sends_zeros() -> None:
    reducer = ErrorFeedback(TopK(0.25), by_rate=True)
    result = step(reducer, [random(12)], [reducer.at_rate(reducer.init(torch.zeros(12), 0), 0.0)])
    assert not result.reduced.any()
    assert not materialize(result.states[0].residual).any()


def test_without_by_rate_the_rate_does_not_matter() -> None:
    reducer = ErrorFeedback(TopK(0.25))
    state = reducer.init(torch.zeros(12), 0)
    result = step(reducer, [random(12)], [state])
    assert reducer.at_rate(result.states[0], 0.1) is result.states[0]


def test_a_warm_up_passes_on_the_rate() -> None:
    reducer = WarmUp(1, ErrorFeedback(TopK(0.25), by_rate=True))
    state = reducer.at_rate(reducer.init(torch.zeros(12), 0), 0.5)
    assert state.then.rate == 0.5
