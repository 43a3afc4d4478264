from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from torch import Tensor

from thinwire import (
    Average,
    Cast,
    Entropy,
    ErrorFeedback,
    Identity,
    Nonzero,
    PowerSGD,
    Quantize,
    RandomK,
    Server,
    Sharded,
    Sign,
    TopK,
)
from thinwire.core.lazy import materialize
from thinwire.extend import (
    ALL_GATHER,
    REDUCE_SCATTER,
    Codec,
    Message,
    Peers,
    Reducer,
    Reply,
    Route,
    all_ranks,
    broadcast_from,
    gather_to,
    lockstep,
    reduce_to,
    send,
)
from thinwire.inspect import Meter
from thinwire.simulate import LockStepError, Simulated
from thinwire.wire import payload

from ..helpers import by_rank, random, same_bits, same_states, say, started, step

RANKS = (1, 2, 3, 4, 7)
ENTRIES = 840  # a multiple of all the worlds' sizes, so that formulas hold to the byte
every_size = pytest.mark.parametrize("ranks", RANKS)


def once(*messages: Message) -> Generator[Message, Reply, list[Reply]]:
    """One message a round."""
    replies = []
    for message in messages:
        replies.append((yield message))
    return replies


def talk(size: int, *conversations: Any, peers: Peers | None = None) -> Any:
    return lockstep([(peers or all_ranks(size), conversation) for conversation in conversations])


# --- determinism


@pytest.mark.parametrize(
    "reducer",
    [Average(), ErrorFeedback(PowerSGD(2)), Average(Quantize(4, stochastic=True)), Average(Entropy())],
    ids=repr,
)
def test_two_runs_give_the_same_bits_and_bytes(reducer: Any) -> None:
    def run() -> tuple[list[Tensor], list[Any], list[tuple[int, int, int]]]:
        suited, states = started(reducer, torch.zeros(12, 20), 3)
        reduced = []
        for i in range(3):
            held = step(suited, by_rank(3, 12, 20, seed=i), states)
            states = held.states
            reduced.append(held.reduced)
        return reduced, states, [(m.rounds, m.payload_bytes, m.link_bytes) for m in held.meters]

    (first, states, bytes_), (again, states_again, bytes_again) = run(), run()
    assert all(map(same_bits, first, again))
    assert same_states(states, states_again)
    assert bytes_ == bytes_again


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_message_gives_the_same_bits_alone_and_among_others(dtype: torch.dtype) -> None:
    # Types of every width, layouts that are fixed and that vary, all in one round.
    codecs = (Identity(), Cast("float16"), Quantize(5), Entropy(), RandomK(0.3), TopK(0.2), Nonzero(), Sign())
    ranks = 3

    def messages(rank: int) -> list[Message]:
        xs = [random(7 + 2 * i, seed=10 * i + rank, dtype=dtype) for i in range(len(codecs))]
        company = [random(5, seed=90 + rank, dtype=other) for other in (torch.float64, torch.float16, torch.float32)]
        said = [Message(x, codec, seed=i) for i, (x, codec) in enumerate(zip(xs, codecs, strict=True))]
        return said + [Message(x, Identity()) for x in company]

    joint = Simulated(ranks).run([talk(ranks, *map(once, messages(rank))) for rank in range(ranks)])
    for i, said in enumerate(zip(*map(messages, range(ranks)), strict=True)):
        alone, _ = say(said)
        for rank in range(ranks):
            (reply,) = joint[rank][i]
            assert same_bits(reply.reduced, alone[rank].reduced)
            assert same_bits(reply.sent, alone[rank].sent)


# --- what comes back


@every_size
@pytest.mark.parametrize("codec", [Identity(), Entropy(), Nonzero()], ids=repr)
def test_all_hear_the_mean_of_what_all_say(codec: Codec, ranks: int) -> None:
    xs = by_rank(ranks, 5, 6)
    replies, _ = say([Message(x, codec) for x in xs])
    for x, reply in zip(xs, replies, strict=True):
        torch.testing.assert_close(reply.reduced, torch.stack(xs).mean(0))
        assert same_bits(reply.sent, x)


@pytest.mark.parametrize("weights", [(0.5, 0.25, 0.25), (1.0, -1.0, 0.0), (0.0, 0.0, 1.0), (2.0, 2.0, 2.0)])
@pytest.mark.parametrize("codec", [Identity(), Cast("float16"), Entropy(), Quantize(8)], ids=repr)
def test_a_sum_is_weighted(codec: Codec, weights: tuple[float, ...]) -> None:
    xs = by_rank(3, 40)
    peers = Peers("some", tuple(enumerate(weights)))
    replies, _ = say([Message(x, codec) for x in xs], peers)
    sent = torch.stack([reply.sent for reply in replies]).double()
    expected = (torch.tensor(weights, dtype=torch.float64)[:, None] * sent).sum(0)
    for reply in replies:
        torch.testing.assert_close(reply.reduced.double(), expected, rtol=2e-3, atol=2e-3)
        assert same_bits(reply.reduced, replies[0].reduced)


@pytest.mark.parametrize(
    "reducer",
    [
        Average(),
        Average(Quantize(8)),
        Average(TopK(0.1)),
        Sharded(Quantize(8), Quantize(8)),
        Server(Sign(), Quantize(8)),
    ],
    ids=repr,
)
def test_a_rank_that_counts_for_nothing_only_listens(reducer: Reducer) -> None:
    size, silent = 4, 3
    xs = by_rank(size, 37)
    suited, states = started(reducer, xs[0], size)
    held = step(suited, xs, states, peers=all_ranks(size, without={silent}))
    assert all(same_bits(reply.reduced, held.reduced) for reply in held.replies)
    said = torch.stack([reply.sent for reply in held.replies[:silent]])
    if reducer != Average():  # whose signals all ranks add up, each a part
        assert not held.replies[silent].sent.any()
    if not isinstance(reducer, Server | Sharded):  # which round their answers too
        assert same_bits(held.reduced, step(suited, xs[:silent], states[:silent]).reduced)
    torch.testing.assert_close(held.reduced, said.mean(0), rtol=0, atol=0.05)


@pytest.mark.parametrize("codec", [Identity(), Entropy()], ids=repr)
def test_each_rank_hears_the_sum_with_its_own_weights_or_is_refused(codec: Codec) -> None:
    # A row of a mixing matrix for each rank: whoever is silently given another's row trains on something else.
    xs, rows = by_rank(2, 40), ((0.75, 0.25), (0.5, 0.5))
    talks = [
        talk(2, once(Message(x, codec)), peers=Peers("mix", tuple(enumerate(row))))
        for x, row in zip(xs, rows, strict=True)
    ]
    try:
        replies = [reply for ((reply,),) in Simulated(2).run(talks)]
    except (LockStepError, ValueError):
        return
    for row, reply in zip(rows, replies, strict=True):
        torch.testing.assert_close(reply.reduced, row[0] * xs[0] + row[1] * xs[1])


@pytest.mark.parametrize("source", [0, 2])
@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
def test_one_speaks_and_all_hear_it(codec: Codec, source: int) -> None:
    xs = by_rank(3, 40)
    replies, _ = say([Message(x, codec, route=broadcast_from(source)) for x in xs])
    said = payload.decode(payload.encode(xs[source], codec, 0), codec, 0, xs[0])
    for rank, reply in enumerate(replies):
        assert same_bits(reply.reduced, said)
        assert torch.equal(reply.sent, said if rank == source else torch.zeros(40))


@pytest.mark.parametrize("target", [0, 2])
@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
def test_all_speak_and_one_hears_the_mean(codec: Codec, target: int) -> None:
    xs = by_rank(3, 40)
    replies, _ = say([Message(x, codec, route=reduce_to(target)) for x in xs])
    mean = torch.stack([reply.sent for reply in replies]).mean(0)
    for rank, reply in enumerate(replies):
        torch.testing.assert_close(reply.reduced, mean if rank == target else torch.zeros(40))


@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
@pytest.mark.parametrize(("source", "target"), [(0, 2), (2, 1), (1, 1)])
def test_one_speaks_and_one_hears_it(codec: Codec, source: int, target: int) -> None:
    xs = by_rank(3, 40)
    replies, counted = say([Message(x, codec, route=send(source, target)) for x in xs])
    said = payload.decode(payload.encode(xs[source], codec, 0), codec, 0, xs[0])
    for rank, reply in enumerate(replies):
        assert torch.equal(reply.reduced, said if rank == target else torch.zeros(40))
        assert torch.equal(reply.sent, said if rank == source else torch.zeros(40))
    assert {(rank, to) for rank, meter in enumerate(counted) for to, n in meter.sent.items() if n} <= {(source, target)}


@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
def test_each_speaks_and_one_hears_them_one_by_one(codec: Codec) -> None:
    xs = by_rank(3, 40)
    replies, counted = say([Message(x, codec, route=gather_to(1)) for x in xs])
    assert torch.equal(replies[1].reduced, torch.stack([reply.sent for reply in replies]))
    for rank in (0, 2):
        assert torch.equal(replies[rank].reduced, torch.zeros(40))
        assert set(counted[rank].sent) == {1}
    assert not counted[1].sent


def test_a_message_to_some_of_the_ranks_is_a_sum_over_them() -> None:
    some = Peers("some", ((0, 0.5), (1, 0.5)))
    messages = [Message(x, Identity(), route=broadcast_from(0)) for x in by_rank(3, 4)]
    with pytest.raises(ValueError, match="a sum over them, not broadcast from 0"):
        Simulated(3).run([lockstep([(some, once(message))]) for message in messages])


def test_the_sum_of_half_precision_numbers_is_not_made_in_half_precision() -> None:
    # 0.0005 is less than half a step of float16 at 1: added one by one, the small ones would all vanish.
    xs = [torch.tensor([1.0, 1.0], dtype=torch.float16)] + [torch.full((2,), 4e-4, dtype=torch.float16)] * 15
    replies, _ = say([Message(x, Identity()) for x in xs])
    expected = torch.stack(xs).double().mean(0).half()
    assert torch.equal(replies[0].reduced, expected)


# --- what it costs


def meters(messages: list[Message]) -> list[Meter]:
    return say(messages)[1]


@every_size
@pytest.mark.parametrize(
    ("codec", "entry_bytes"), [(Identity(), 4), (Cast("float16"), 2), (RandomK(0.5), 2)], ids=lambda v: repr(v)
)
def test_what_is_linear_costs_what_a_ring_all_reduce_costs(codec: Codec, entry_bytes: int, ranks: int) -> None:
    size = entry_bytes * ENTRIES
    for meter in meters([Message(x, codec) for x in by_rank(ranks, ENTRIES)]):
        assert meter.payload_bytes == size
        assert meter.link_bytes == 2 * (ranks - 1) * size // ranks
        assert meter.rounds == 1


@every_size
def test_what_is_gathered_costs_a_message_from_every_other_rank(ranks: int) -> None:
    sealed = payload.encoded_bytes(Quantize(8), torch.zeros(ENTRIES))
    assert sealed == ENTRIES + 2 * 4
    for meter in meters([Message(x, Quantize(8)) for x in by_rank(ranks, ENTRIES)]):
        assert meter.payload_bytes == sealed
        assert meter.link_bytes == (ranks - 1) * sealed


@every_size
def test_what_varies_costs_its_length_and_the_telling_of_it(ranks: int) -> None:
    xs = by_rank(ranks, ENTRIES)
    for rank, x in enumerate(xs):
        x[100 * rank :] = 0  # every rank has more to say than the one before
    lengths = [payload.encode(x, Nonzero(), 0).numel() for x in xs]
    assert len(set(lengths)) == ranks
    for rank, meter in enumerate(meters([Message(x, Nonzero()) for x in xs])):
        out, in_ = (ranks - 1) * lengths[rank], sum(lengths) - lengths[rank]
        assert meter.payload_bytes == lengths[rank]
        assert meter.link_bytes == 8 * (ranks - 1) + max(out, in_)
        assert meter.rounds == 1


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_server_carries_everyones_messages_and_a_worker_its_own(ranks: int) -> None:
    size = 4 * ENTRIES
    xs = by_rank(ranks, ENTRIES)
    server, *workers = meters([Message(x, Identity(), route=reduce_to(0)) for x in xs])
    assert server.link_bytes == (ranks - 1) * size
    assert {worker.link_bytes for worker in workers} == {size}
    assert {worker.payload_bytes for worker in workers} == {size}
    server, *workers = meters([Message(x, Identity(), route=broadcast_from(0)) for x in xs])
    assert (server.payload_bytes, server.link_bytes) == (size, (ranks - 1) * size)
    assert {(worker.payload_bytes, worker.link_bytes) for worker in workers} == {(0, size)}


@every_size
def test_what_is_sharded_costs_a_shard_to_and_from_every_other_rank(ranks: int) -> None:
    shard = 4 * ENTRIES // ranks
    for meter in meters([Message(x, Identity(), route=REDUCE_SCATTER) for x in by_rank(ranks, ENTRIES)]):
        assert (meter.payload_bytes, meter.link_bytes) == (4 * ENTRIES, (ranks - 1) * shard)
    for meter in meters([Message(x, Identity(), route=ALL_GATHER) for x in by_rank(ranks, ENTRIES // ranks)]):
        assert (meter.payload_bytes, meter.link_bytes) == (shard, (ranks - 1) * shard)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_method_costs_what_its_rounds_cost(ranks: int) -> None:
    suited, states = started(Sharded(Quantize(8), Quantize(8)), torch.zeros(512 * 84), ranks)
    sealed = 512 * 84 + 4 * 84
    for meter in step(suited, by_rank(ranks, 512 * 84), states).meters:
        assert meter.rounds == 2
        assert meter.payload_bytes == sealed + sealed // ranks
        assert meter.link_bytes == 2 * (ranks - 1) * sealed // ranks


def test_messages_of_one_round_are_counted_together() -> None:
    def both(rank: int) -> Any:
        dense = once(Message(random(ENTRIES, seed=rank), Identity()))
        return talk(2, dense, once(Message(random(ENTRIES, seed=rank), Quantize(8))))

    transport = Simulated(2)
    transport.run([both(rank) for rank in range(2)])
    for meter in transport.meters:
        assert meter.rounds == 1
        assert meter.payload_bytes == 4 * ENTRIES + ENTRIES + 8
        assert meter.link_bytes == 4 * ENTRIES + ENTRIES + 8


def test_a_meter_goes_on_from_talk_to_talk() -> None:
    transport = Simulated(2)
    for _ in range(3):
        transport.run([talk(2, once(Message(random(10), Identity()))) for _ in range(2)])
    assert [meter.rounds for meter in transport.meters] == [3, 3]
    assert [meter.payload_bytes for meter in transport.meters] == [120, 120]


# --- lock step

x = random(6)
BREACHES: dict[str, tuple[Callable[[], list[Message]], Callable[[], list[Message]], str]] = {
    "different shapes": (
        lambda: [Message(x, Identity())],
        lambda: [Message(random(7), Identity())],
        r"rank 1 sends a torch.float32 tensor of shape \(7,\).* where rank 0 sends .* shape \(6,\)",
    ),
    "different shapes of as many entries": (
        lambda: [Message(x, Identity())],
        lambda: [Message(x.view(2, 3), Identity())],
        r"rank 1 sends .* shape \(2, 3\).* where rank 0 sends .* shape \(6,\)",
    ),
    "different types": (
        lambda: [Message(x, Identity())],
        lambda: [Message(x.double(), Identity())],
        "rank 1 sends a torch.float64.* where rank 0 sends a torch.float32",
    ),
    "different codecs": (
        lambda: [Message(x, TopK(0.5))],
        lambda: [Message(x, TopK(0.25))],
        r"rank 1 sends .*TopK\(0.25\).* where rank 0 sends .*TopK\(0.5\)",
    ),
    "one codec linear, the other not": (
        lambda: [Message(x, Identity())],
        lambda: [Message(x, Entropy())],
        r"rank 1 sends .*Entropy\(\).* where rank 0 sends .*Identity\(\)",
    ),
    "different seeds": (
        lambda: [Message(x, RandomK(0.5), seed=1)],
        lambda: [Message(x, RandomK(0.5), seed=2)],
        "rank 1 sends .*seed 2.* where rank 0 sends .*seed 1",
    ),
    "different servers": (
        lambda: [Message(x, Identity(), route=reduce_to(0))],
        lambda: [Message(x, Identity(), route=reduce_to(1))],
        "rank 1 sends .* to 1 .*where rank 0 sends .* to 0",
    ),
    "different speakers": (
        lambda: [Message(x, Identity(), route=broadcast_from(0))],
        lambda: [Message(x, Identity(), route=broadcast_from(1))],
        "rank 1 sends .* from 1 .*where rank 0 sends .* from 0",
    ),
    "one stops early": (
        lambda: [Message(x, Identity())] * 2,
        lambda: [Message(x, Identity())],
        "rank 1 has finished, while rank 0 sends a torch.float32 tensor",
    ),
    "one is silent": (
        list,
        lambda: [Message(x, Identity())],
        "rank 0 has finished, while rank 1 sends a torch.float32 tensor",
    ),
    "later rounds differ": (
        lambda: [Message(x, Identity()), Message(x, Sign())],
        lambda: [Message(x, Identity()), Message(x, Identity())],
        r"rank 1 sends .*Identity\(\).* where rank 0 sends .*Sign\(\)",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_that_fall_out_of_step_are_told_how(breach: str, size: int) -> None:
    first, second, problem = BREACHES[breach]
    talks = [talk(size, once(*(second() if rank == 1 else first()))) for rank in range(size)]
    with pytest.raises(LockStepError, match=problem):
        Simulated(size).run(talks)


@pytest.mark.parametrize("more", [0, 1])
def test_a_rank_that_says_more_in_a_round_is_told_so(more: int) -> None:
    talks = [talk(2, *(once(Message(x, Identity())) for _ in range(2 if rank == more else 1))) for rank in range(2)]
    with pytest.raises(LockStepError, match=r"sends nothing where|where rank 0 sends nothing"):
        Simulated(2).run(talks)


def test_different_topics_are_a_breach() -> None:
    talks = [
        talk(2, once(Message(x, Identity())), peers=Peers(topic, ((0, 0.5), (1, 0.5)))) for topic in ("here", "there")
    ]
    with pytest.raises(LockStepError, match=r"on 'there' where rank 0 sends .* on 'here'"):
        Simulated(2).run(talks)


def test_an_error_on_one_rank_is_raised_as_it_is() -> None:
    def failing() -> Generator[Message, Reply, None]:
        yield Message(x, Identity())
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Simulated(2).run([talk(2, once(Message(x, Identity()))), talk(2, failing())])


# --- what it takes


def test_as_many_talks_as_ranks_are_needed() -> None:
    with pytest.raises(ValueError, match="1 exchanges were given for 2 ranks"):
        Simulated(2).run([talk(2)])


@pytest.mark.parametrize("ranks", [0, -1])
def test_a_world_has_a_rank(ranks: int) -> None:
    with pytest.raises(ValueError, match=f"1 rank or more, not {ranks}"):
        Simulated(ranks)


@pytest.mark.parametrize("weights", [((2, 1.0),), ((1, 0.5), (0, 0.5)), ((0, 0.5), (0, 0.5)), ((0, 0.3),) * 3])
def test_peers_that_are_not_the_ranks_here_are_refused(weights: tuple[tuple[int, float], ...]) -> None:
    talks = [talk(2, once(Message(x, Identity())), peers=Peers("odd", weights)) for _ in range(2)]
    with pytest.raises(ValueError, match="does not weigh some of the ranks 0 to 1"):
        Simulated(2).run(talks)


@pytest.mark.parametrize("route", [broadcast_from(2), reduce_to(2), send(0, 2)], ids=str)
def test_a_route_with_a_rank_that_does_not_exist_is_refused(route: Route) -> None:
    with pytest.raises(ValueError, match=f"a message goes {route}, but there are only 2 ranks"):
        say([Message(x, Identity(), route=route)] * 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("codec", [Nonzero(), TopK(0.5), Identity()], ids=repr)
def test_sums_of_16_bits_are_rounded_once(codec: Codec, dtype: torch.dtype) -> None:
    ranks = 32
    said = by_rank(ranks, 200, dtype=dtype)
    replies, _ = say([Message(x, codec, lazy=True) for x in said])
    exact = sum(materialize(reply.sent).double() for reply in replies) / ranks
    assert torch.equal(materialize(replies[0].reduced), exact.to(dtype))
