import pytest
import torch

from thinwire import Average, Difference, ErrorFeedback, Identity, Quantize, Sign, TopK

from ..helpers import by_rank, parameter, same_bits, started, step


@pytest.mark.parametrize("inner", [TopK(0.2), Quantize(4), Sign(), ErrorFeedback(TopK(0.3))], ids=repr)
def test_for_constant_tensors_the_result_converges_to_their_mean(inner: object) -> None:
    xs = by_rank(3, 6, 10)
    reducer, states = started(Difference(inner), xs[0], 3)  # type: ignore[arg-type]
    errors = []
    for _ in range(60):
        result = step(reducer, xs, states)
        states = result.states
        errors.append((result.reduced - torch.stack(xs).mean(0)).norm().item())
    assert errors[-1] < 0.05 * errors[0]


def test_only_the_change_is_sent() -> None:
    xs = by_rank(2, 40)
    reducer, states = started(Difference(TopK(0.25)), xs[0], 2)
    first = step(reducer, xs, states)
    assert all(same_bits(sent[0].tensor, x) for sent, x in zip(first.messages, xs, strict=True))
    second = step(reducer, xs, first.states)
    for x, sent, reply in zip(xs, second.messages, first.replies, strict=True):
        assert torch.equal(sent[0].tensor, x - reply.sent)
        assert not sent[0].tensor[reply.sent != 0].any(), "entries that were sent exactly have no change"


def test_the_reply_is_the_accumulated_mean_and_the_accumulated_own_tensor() -> None:
    xs = by_rank(4, 30)
    reducer, states = started(Difference(TopK(0.3)), xs[0], 4)
    result = step(reducer, xs, states)
    result = step(reducer, [2 * x for x in xs], result.states)
    known = torch.stack([reply.sent for reply in result.replies])
    torch.testing.assert_close(result.reduced, known.mean(0))
    assert all(same_bits(reply.sent, state.mine) for reply, state in zip(result.replies, result.states, strict=True))


def test_the_given_state_is_not_modified() -> None:
    xs = by_rank(2, 50)
    reducer, states = started(Difference(TopK(0.2)), xs[0], 2)
    states = step(reducer, xs, states).states
    kept = [(state.mine.clone(), state.theirs.clone()) for state in states]
    step(reducer, xs, states)
    assert all(same_bits((state.mine, state.theirs), before) for state, before in zip(states, kept, strict=True))


def test_a_state_initialized_at_the_tensor_sends_zeros() -> None:
    x = torch.linspace(-1, 1, 12)
    reducer = Difference(TopK(0.5))
    result = step(reducer, [x, x], [reducer.init_at(x, 0)] * 2)
    assert not result.messages[0][0].tensor.any()
    assert torch.equal(result.reduced, x)


def test_a_lossless_codec_is_specialized_to_average() -> None:
    assert Difference(Identity()).specialize(parameter(torch.zeros(3, 4))) == Average()


def test_an_argument_of_another_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="a codec or a reducer is needed here, not 3"):
        Difference(3)  # type: ignore[arg-type]
