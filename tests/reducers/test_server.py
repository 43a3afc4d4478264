import pytest
import torch

from thinwire import Codec, Feedback, Identity, Quantize, RandomK, Server, Sign, TopK
from thinwire.lazy import dense

from ..helpers import by_rank, same_bits, started, step

NODES = 4


def test_only_the_server_remembers() -> None:
    suited, states = started(Server(Quantize(8), TopK(0.1), at=2), torch.zeros(50), NODES)
    for i in range(3):
        states = step(suited, by_rank(NODES, 50, seed=i), states).states
    assert [bool(state.residual.any()) for state in states] == [False, False, True, False]


@pytest.mark.parametrize("down", [TopK(0.1), Sign(), Quantize(2), RandomK(0.3)], ids=repr)
@pytest.mark.parametrize("at", [0, 3])
def test_what_the_server_could_not_say_it_says_later(down: Codec, at: int) -> None:
    suited, states = started(Server(Quantize(8), down, at=at), torch.zeros(50), NODES)
    heard, told = torch.zeros(50), torch.zeros(50)
    for i in range(20):
        held = step(suited, by_rank(NODES, 50, seed=i), states)
        states = held.states
        heard += torch.stack([reply.sent for reply in held.replies]).mean(0)
        told += held.reduced
    unsaid = states[at].residual
    torch.testing.assert_close(told + unsaid, heard, rtol=0, atol=1e-4)
    assert unsaid.abs().max() > 1e-3, "nothing was left unsaid: this test would pass without memory"


def test_what_a_rank_sent_is_its_own_message() -> None:
    xs = by_rank(NODES, 50)
    suited, states = started(Server(Identity(), TopK(0.1)), xs[0], NODES)
    held = step(suited, xs, states)
    assert all(same_bits(reply.sent, x) for reply, x in zip(held.replies, xs, strict=True))


def test_workers_carry_one_message_each_way_and_the_server_everyones() -> None:
    size = 1024
    suited, states = started(Server(Quantize(8), Quantize(4)), torch.zeros(size), NODES)
    meters = step(suited, by_rank(NODES, size), states).meters
    up, down = size + 4 * size // 512, size // 2 + 4 * size // 512
    server, *workers = meters
    for worker in workers:
        assert (worker.payload_bytes, worker.link_bytes) == (up, up + down)
    assert server.link_bytes == (NODES - 1) * (up + down)
    assert all(meter.rounds == 2 for meter in meters)


def test_feedback_around_a_server_keeps_both_memories_apart() -> None:
    suited, states = started(Feedback(Server(TopK(0.1), TopK(0.1))), torch.zeros(50), NODES)
    given, told = torch.zeros(50), torch.zeros(50)
    for i in range(20):
        xs = by_rank(NODES, 50, seed=i)
        held = step(suited, xs, states)
        states = held.states
        given += torch.stack(xs).mean(0)
        told += held.reduced
    at_ranks = torch.stack([dense(state.residual) for state in states]).mean(0)
    at_server = states[0].inner.residual
    torch.testing.assert_close(told + at_ranks + at_server, given, rtol=0, atol=1e-4)


def test_a_server_that_is_not_there_is_refused() -> None:
    suited, states = started(Server(Identity(), Identity(), at=2), torch.zeros(5), 2)
    with pytest.raises(ValueError, match="rank 2 as its target, but there are only 2 ranks"):
        step(suited, by_rank(2, 5), states)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"up": "int8", "down": Identity()}, "a codec for up, not 'int8'"),
        ({"up": Identity(), "down": 8}, "a codec for down, not 8"),
        ({"up": Identity(), "down": Identity(), "at": -1}, "rank of 0 or more, not -1"),
        ({"up": Identity(), "down": Identity(), "at": 0.5}, "rank of 0 or more, not 0.5"),
    ],
)
def test_a_wrong_setting_is_refused(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Server(**arguments)  # type: ignore[arg-type]
