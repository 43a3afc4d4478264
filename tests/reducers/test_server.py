import pytest
import torch

from thinwire import (
    DGC,
    AdaComp,
    Average,
    Cast,
    Choose,
    ErrorFeedback,
    FittedFloat,
    Identity,
    Nonzero,
    PowerIteration,
    PowerSGD,
    Quantize,
    RandomK,
    Server,
    Sharded,
    Sign,
    TopK,
    When,
)
from thinwire.core.lazy import materialize
from thinwire.extend import Codec, Reducer, all_ranks

from ..helpers import by_rank, same_bits, started, step

NODES = 4


def test_only_the_server_remembers() -> None:
    suited, states = started(Server(Quantize(8), TopK(0.1), rank=2), torch.zeros(50), NODES)
    for i in range(3):
        states = step(suited, by_rank(NODES, 50, seed=i), states).states
    assert [bool(state.residual.any()) for state in states] == [False, False, True, False]


@pytest.mark.parametrize("down", [TopK(0.1), Sign(), Quantize(2), RandomK(0.3)], ids=repr)
@pytest.mark.parametrize("at", [0, 3])
def test_what_the_server_could_not_say_it_says_later(down: Codec, at: int) -> None:
    suited, states = started(Server(Quantize(8), down, rank=at), torch.zeros(50), NODES)
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
    suited, states = started(ErrorFeedback(Server(TopK(0.1), TopK(0.1))), torch.zeros(50), NODES)
    given, told = torch.zeros(50), torch.zeros(50)
    for i in range(20):
        xs = by_rank(NODES, 50, seed=i)
        held = step(suited, xs, states)
        states = held.states
        given += torch.stack(xs).mean(0)
        told += held.reduced
    at_ranks = torch.stack([materialize(state.residual) for state in states]).mean(0)
    at_server = states[0].inner.residual
    torch.testing.assert_close(told + at_ranks + at_server, given, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("reducer", "down"),
    [
        (AdaComp(10), Nonzero()),
        (DGC(0.1), Nonzero()),
        (FittedFloat(refit=2), Identity()),
        (PowerIteration(2), Identity()),
        (PowerSGD(2), Identity()),
        (PowerSGD(1, codec=Cast("float16")), Identity()),
        (PowerSGD(2, codec=Quantize(8)), Identity()),
    ],
    ids=repr,
)
def test_a_reducer_agrees_on_the_same_by_way_of_a_server(reducer: Reducer, down: Codec) -> None:
    shape = (12, 20)
    alone, states = started(reducer, torch.zeros(shape), NODES)
    through, others = started(Server(reducer, down, rank=1), torch.zeros(shape), NODES)
    for i in range(4):
        xs = by_rank(NODES, *shape, seed=i)
        direct, served = step(alone, xs, states), step(through, xs, others)
        states, others = direct.states, served.states
        for here, there in zip(served.replies, direct.replies, strict=True):
            assert same_bits(here.reduced, there.reduced)
            assert same_bits(here.sent, there.sent)
        assert all(1 in message.route.named for said in served.messages for message in said)
        assert [bool(meter.received) for meter in served.meters] == [True] * NODES
        assert all(set(meter.sent) <= {1} for rank, meter in enumerate(served.meters) if rank != 1)


def test_what_a_reducer_leaves_to_others_goes_by_way_of_the_server_too() -> None:
    for reducer in (PowerSGD(2), DGC(0.1)):
        through = Server(reducer, Nonzero(), rank=2)
        for whole in (through, ErrorFeedback(through)):
            assert started(whole, torch.zeros(30), NODES)[0] == Server(Identity(), Identity(), rank=2)
    inside = Server(AdaComp(10), Nonzero())
    assert started(inside, torch.zeros(12, 20), NODES)[0] == inside
    assert inside.needs_shape == AdaComp(10).needs_shape


def test_a_codec_and_saying_the_tensor_through_it_are_the_same() -> None:
    assert Server(Average(Quantize(8)), Quantize(2)) == Server(Quantize(8), Quantize(2))
    cases = Choose(When(PowerSGD(1), min_dim=2), otherwise=TopK(0.1))
    assert started(Server(cases, Quantize(8)), torch.zeros(30), NODES)[0] == Server(TopK(0.1), Quantize(8))


def test_who_only_serves_counts_for_nothing() -> None:
    xs = by_rank(NODES, 50)
    suited, states = started(Server(Quantize(8), Identity(), dedicated=True), xs[0], NODES)
    held = step(suited, xs, states, peers=all_ranks(NODES, without={0}))
    alone, states = started(Server(Quantize(8), Identity()), xs[0], NODES - 1)
    expected = step(alone, xs[1:], states)
    assert all(same_bits(reply.reduced, expected.reduced) for reply in held.replies)
    assert [meter.payload_bytes for meter in held.meters[1:]] == [held.meters[1].payload_bytes] * (NODES - 1)
    assert held.meters[0].payload_bytes == 4 * 50, "it says the answer only"


def test_a_server_rank_outside_the_world_is_an_error() -> None:
    suited, states = started(Server(Identity(), Identity(), rank=2), torch.zeros(5), 2)
    with pytest.raises(ValueError, match="reduce to 2, but there are only 2 ranks"):
        step(suited, by_rank(2, 5), states)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"up": "int8", "down": Identity()}, "a codec for up, not 'int8'"),
        ({"up": Identity(), "down": 8}, "a codec for down, not 8"),
        ({"up": Identity(), "down": Identity(), "rank": -1}, "rank of 0 or more, not -1"),
        ({"up": Identity(), "down": Identity(), "rank": 0.5}, "rank of 0 or more, not 0.5"),
        ({"up": Identity(), "down": PowerSGD(2)}, r"a codec for down, not PowerSGD\(2\)"),
        ({"up": Identity(), "down": Identity(), "dedicated": 1}, "True or False, not 1"),
        ({"up": ErrorFeedback(Server(Sign(), Sign())), "down": Identity()}, "has its own server"),
        ({"up": Sharded(Sign(), Sign()), "down": Identity()}, "has its own server"),
    ],
)
def test_an_invalid_setting_is_an_error(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Server(**arguments)  # type: ignore[arg-type]
