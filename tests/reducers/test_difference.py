import pytest
import torch

from thinwire import Average, Difference, ErrorFeedback, Identity, Quantize, Sign, TopK

from ..helpers import by_rank, parameter, same_bits, started, step


@pytest.mark.parametrize("inner", [TopK(0.2), Quantize(4), Sign(), ErrorFeedback(TopK(0.3))], ids=repr)
def test_what_is_agreed_on_comes_close_to_the_mean_of_tensors_that_stay(inner: object) -> None:
    xs = by_rank(3, 6, 10)
    reducer, states = started(Difference(inner), xs[0], 3)  # type: ignore[arg-type]
    errors = []
    for _ in range(60):
        held = step(reducer, xs, states)
        states = held.states
        errors.append((held.reduced - torch.stack(xs).mean(0)).norm().item())
    assert errors[-1] < 0.05 * errors[0]


def test_it_says_what_is_new_only() -> None:
    xs = by_rank(2, 40)
    reducer, states = started(Difference(TopK(0.25)), xs[0], 2)
    first = step(reducer, xs, states)
    assert all(same_bits(said[0].tensor, x) for said, x in zip(first.messages, xs, strict=True))
    again = step(reducer, xs, first.states)
    for x, said, reply in zip(xs, again.messages, first.replies, strict=True):
        assert torch.equal(said[0].tensor, x - reply.sent)
        assert not said[0].tensor[reply.sent != 0].any(), "what was said exactly is not said again"


def test_the_reply_is_what_is_known_of_all_and_of_this_rank() -> None:
    xs = by_rank(4, 30)
    reducer, states = started(Difference(TopK(0.3)), xs[0], 4)
    held = step(reducer, xs, states)
    held = step(reducer, [2 * x for x in xs], held.states)
    known = torch.stack([reply.sent for reply in held.replies])
    torch.testing.assert_close(held.reduced, known.mean(0))
    assert all(same_bits(reply.sent, state.mine) for reply, state in zip(held.replies, held.states, strict=True))


def test_the_last_state_stays_valid() -> None:
    xs = by_rank(2, 50)
    reducer, states = started(Difference(TopK(0.2)), xs[0], 2)
    states = step(reducer, xs, states).states
    kept = [(state.mine.clone(), state.theirs.clone()) for state in states]
    step(reducer, xs, states)
    assert all(same_bits((state.mine, state.theirs), before) for state, before in zip(states, kept, strict=True))


def test_all_may_know_a_tensor_from_the_start() -> None:
    x = torch.linspace(-1, 1, 12)
    reducer = Difference(TopK(0.5))
    held = step(reducer, [x, x], [reducer.knowing(x, 0)] * 2)
    assert not held.messages[0][0].tensor.any()
    assert torch.equal(held.reduced, x)


def test_what_loses_nothing_needs_no_memory() -> None:
    assert Difference(Identity()).specialize(parameter(torch.zeros(3, 4))) == Average()


def test_it_takes_a_codec_or_a_reducer() -> None:
    with pytest.raises(ValueError, match="a codec or a reducer is needed here, not 3"):
        Difference(3)  # type: ignore[arg-type]
