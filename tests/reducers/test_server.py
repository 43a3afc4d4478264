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

RANKS = 4


def test_only_the_server_has_a_residual() -> None:
    specialized, states = started(Server(Quantize(8), TopK(0.1), rank=2), torch.zeros(50), RANKS)
    for i in range(3):
        states = step(specialized, by_rank(RANKS, 50, seed=i), states).states
    assert [bool(state.residual.any()) for state in states] == [False, False, True, False]


@pytest.mark.parametrize("down", [TopK(0.1), Sign(), Quantize(2), RandomK(0.3)], ids=repr)
@pytest.mark.parametrize("rank", [0, 3])
def test_the_residual_of_the_server_is_sent_later(down: Codec, rank: int) -> None:
    specialized, states = started(Server(Quantize(8), down, rank=rank), torch.zeros(50), RANKS)
    received, reduced = torch.zeros(50), torch.zeros(50)
    for i in range(20):
        result = step(specialized, by_rank(RANKS, 50, seed=i), states)
        states = result.states
        received += torch.stack([reply.sent for reply in result.replies]).mean(0)
        reduced += result.reduced
    residual = states[rank].residual
    torch.testing.assert_close(reduced + residual, received, rtol=0, atol=1e-4)
    assert residual.abs().max() > 1e-3, "without a residual, this test would pass for a reducer without state"


def test_sent_is_the_ranks_own_message() -> None:
    xs = by_rank(RANKS, 50)
    specialized, states = started(Server(Identity(), TopK(0.1)), xs[0], RANKS)
    result = step(specialized, xs, states)
    assert all(same_bits(reply.sent, x) for reply, x in zip(result.replies, xs, strict=True))


def test_workers_carry_one_message_each_way_and_the_server_those_of_all() -> None:
    size = 1024
    specialized, states = started(Server(Quantize(8), Quantize(4)), torch.zeros(size), RANKS)
    meters = step(specialized, by_rank(RANKS, size), states).meters
    up, down = size + 4 * size // 512, size // 2 + 4 * size // 512
    server, *workers = meters
    for worker in workers:
        assert (worker.payload_bytes, worker.link_bytes) == (up, up + down)
    assert server.link_bytes == (RANKS - 1) * (up + down)
    assert all(meter.rounds == 2 for meter in meters)


def test_error_feedback_and_the_server_keep_separate_residuals() -> None:
    specialized, states = started(ErrorFeedback(Server(TopK(0.1), TopK(0.1))), torch.zeros(50), RANKS)
    given, reduced = torch.zeros(50), torch.zeros(50)
    for i in range(20):
        xs = by_rank(RANKS, 50, seed=i)
        result = step(specialized, xs, states)
        states = result.states
        given += torch.stack(xs).mean(0)
        reduced += result.reduced
    at_ranks = torch.stack([materialize(state.residual) for state in states]).mean(0)
    at_server = states[0].inner.residual
    torch.testing.assert_close(reduced + at_ranks + at_server, given, rtol=0, atol=1e-4)


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
def test_a_reducer_through_a_server_gives_the_same_bits(reducer: Reducer, down: Codec) -> None:
    shape = (12, 20)
    plain, states = started(reducer, torch.zeros(shape), RANKS)
    through, served_states = started(Server(reducer, down, rank=1), torch.zeros(shape), RANKS)
    for i in range(4):
        xs = by_rank(RANKS, *shape, seed=i)
        direct, served = step(plain, xs, states), step(through, xs, served_states)
        states, served_states = direct.states, served.states
        for actual, expected in zip(served.replies, direct.replies, strict=True):
            assert same_bits(actual.reduced, expected.reduced)
            assert same_bits(actual.sent, expected.sent)
        assert all(1 in message.route.named for messages in served.messages for message in messages)
        assert [bool(meter.received) for meter in served.meters] == [True] * RANKS
        assert all(set(meter.sent) <= {1} for rank, meter in enumerate(served.meters) if rank != 1)


def test_parameters_that_a_reducer_does_not_compress_go_through_the_server_too() -> None:
    for reducer in (PowerSGD(2), DGC(0.1)):
        through = Server(reducer, Nonzero(), rank=2)
        for wrapped in (through, ErrorFeedback(through)):
            assert started(wrapped, torch.zeros(30), RANKS)[0] == Server(Identity(), Identity(), rank=2)
    compressed = Server(AdaComp(10), Nonzero())
    assert started(compressed, torch.zeros(12, 20), RANKS)[0] == compressed
    assert compressed.needs_shape == AdaComp(10).needs_shape


def test_a_codec_and_average_of_it_are_the_same() -> None:
    assert Server(Average(Quantize(8)), Quantize(2)) == Server(Quantize(8), Quantize(2))
    cases = Choose(When(PowerSGD(1), min_dim=2), otherwise=TopK(0.1))
    assert started(Server(cases, Quantize(8)), torch.zeros(30), RANKS)[0] == Server(TopK(0.1), Quantize(8))


def test_a_dedicated_server_does_not_count_in_the_mean() -> None:
    xs = by_rank(RANKS, 50)
    specialized, states = started(Server(Quantize(8), Identity(), dedicated=True), xs[0], RANKS)
    result = step(specialized, xs, states, peers=all_ranks(RANKS, without={0}))
    workers, states = started(Server(Quantize(8), Identity()), xs[0], RANKS - 1)
    expected = step(workers, xs[1:], states)
    assert all(same_bits(reply.reduced, expected.reduced) for reply in result.replies)
    assert [meter.payload_bytes for meter in result.meters[1:]] == [result.meters[1].payload_bytes] * (RANKS - 1)
    assert result.meters[0].payload_bytes == 4 * 50, "it sends the result only"


def test_a_server_rank_outside_the_world_is_an_error() -> None:
    specialized, states = started(Server(Identity(), Identity(), rank=2), torch.zeros(5), 2)
    with pytest.raises(ValueError, match="reduce to 2, but there are only 2 ranks"):
        step(specialized, by_rank(2, 5), states)


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
