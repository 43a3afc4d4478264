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
    Collective,
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

from ..helpers import by_rank, exchange_messages, random, same_bits, same_states, started, step

RANKS = (1, 2, 3, 4, 7)
ENTRIES = 840  # a multiple of every number of ranks, so that formulas are exact to the byte
every_size = pytest.mark.parametrize("ranks", RANKS)


def once(*messages: Message) -> Generator[Message, Reply, list[Reply]]:
    """Send one message per round."""
    replies = []
    for message in messages:
        replies.append((yield message))
    return replies


def exchange(size: int, *conversations: Any, peers: Peers | None = None) -> Any:
    return lockstep([(peers or all_ranks(size), conversation) for conversation in conversations])


# --- determinism


@pytest.mark.parametrize(
    "reducer",
    [Average(), ErrorFeedback(PowerSGD(2)), Average(Quantize(4, stochastic=True)), Average(Entropy())],
    ids=repr,
)
def test_two_runs_give_the_same_bits_and_bytes(reducer: Any) -> None:
    def run() -> tuple[list[Tensor], list[Any], list[tuple[int, int, int]]]:
        specialized, states = started(reducer, torch.zeros(12, 20), 3)
        reduced = []
        for i in range(3):
            result = step(specialized, by_rank(3, 12, 20, seed=i), states)
            states = result.states
            reduced.append(result.reduced)
        return reduced, states, [(m.rounds, m.payload_bytes, m.link_bytes) for m in result.meters]

    (first, states, bytes_), (again, states_again, bytes_again) = run(), run()
    assert all(map(same_bits, first, again))
    assert same_states(states, states_again)
    assert bytes_ == bytes_again


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_message_gives_the_same_bits_alone_and_with_others_in_the_round(dtype: torch.dtype) -> None:
    # dtypes of every width, and codecs of fixed and variable layout, all in one round.
    codecs = (Identity(), Cast("float16"), Quantize(5), Entropy(), RandomK(0.3), TopK(0.2), Nonzero(), Sign())
    ranks = 3

    def messages_of(rank: int) -> list[Message]:
        xs = [random(7 + 2 * i, seed=10 * i + rank, dtype=dtype) for i in range(len(codecs))]
        others = [random(5, seed=90 + rank, dtype=other) for other in (torch.float64, torch.float16, torch.float32)]
        messages = [Message(x, codec, seed=i) for i, (x, codec) in enumerate(zip(xs, codecs, strict=True))]
        return messages + [Message(x, Identity()) for x in others]

    joint = Simulated(ranks).run([exchange(ranks, *map(once, messages_of(rank))) for rank in range(ranks)])
    for i, messages in enumerate(zip(*map(messages_of, range(ranks)), strict=True)):
        alone, _ = exchange_messages(messages)
        for rank in range(ranks):
            (reply,) = joint[rank][i]
            assert same_bits(reply.reduced, alone[rank].reduced)
            assert same_bits(reply.sent, alone[rank].sent)


# --- replies


@every_size
@pytest.mark.parametrize("codec", [Identity(), Entropy(), Nonzero()], ids=repr)
def test_all_reduce_gives_all_ranks_the_mean(codec: Codec, ranks: int) -> None:
    xs = by_rank(ranks, 5, 6)
    replies, _ = exchange_messages([Message(x, codec) for x in xs])
    for x, reply in zip(xs, replies, strict=True):
        torch.testing.assert_close(reply.reduced, torch.stack(xs).mean(0))
        assert same_bits(reply.sent, x)


@pytest.mark.parametrize("weights", [(0.5, 0.25, 0.25), (1.0, -1.0, 0.0), (0.0, 0.0, 1.0), (2.0, 2.0, 2.0)])
@pytest.mark.parametrize("codec", [Identity(), Cast("float16"), Entropy(), Quantize(8)], ids=repr)
def test_the_sum_has_the_weights_of_peers(codec: Codec, weights: tuple[float, ...]) -> None:
    xs = by_rank(3, 40)
    peers = Peers("some", tuple(enumerate(weights)))
    replies, _ = exchange_messages([Message(x, codec) for x in xs], peers)
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
def test_a_rank_of_weight_zero_only_receives(reducer: Reducer) -> None:
    size, receiver = 4, 3
    xs = by_rank(size, 37)
    specialized, states = started(reducer, xs[0], size)
    result = step(specialized, xs, states, peers=all_ranks(size, without={receiver}))
    assert all(same_bits(reply.reduced, result.reduced) for reply in result.replies)
    sent = torch.stack([reply.sent for reply in result.replies[:receiver]])
    if reducer != Average():  # in an all-reduce, every rank sends its signal
        assert not result.replies[receiver].sent.any()
    if not isinstance(reducer, Server | Sharded):  # these compress the sum, too
        assert same_bits(result.reduced, step(specialized, xs[:receiver], states[:receiver]).reduced)
    torch.testing.assert_close(result.reduced, sent.mean(0), rtol=0, atol=0.05)


@pytest.mark.parametrize("codec", [Identity(), Entropy()], ids=repr)
def test_weights_that_differ_between_ranks_are_used_or_an_error(codec: Codec) -> None:
    # A row of a mixing matrix for each rank: a rank that silently got another row would train with wrong values.
    xs, rows = by_rank(2, 40), ((0.75, 0.25), (0.5, 0.5))
    exchanges = [
        exchange(2, once(Message(x, codec)), peers=Peers("mix", tuple(enumerate(row))))
        for x, row in zip(xs, rows, strict=True)
    ]
    try:
        replies = [reply for ((reply,),) in Simulated(2).run(exchanges)]
    except (LockStepError, ValueError):
        return
    for row, reply in zip(rows, replies, strict=True):
        torch.testing.assert_close(reply.reduced, row[0] * xs[0] + row[1] * xs[1])


@pytest.mark.parametrize("source", [0, 2])
@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
def test_broadcast_gives_all_ranks_the_message(codec: Codec, source: int) -> None:
    xs = by_rank(3, 40)
    replies, _ = exchange_messages([Message(x, codec, route=broadcast_from(source)) for x in xs])
    decoded = payload.decode(payload.encode(xs[source], codec, 0), codec, 0, xs[0])
    for rank, reply in enumerate(replies):
        assert same_bits(reply.reduced, decoded)
        assert torch.equal(reply.sent, decoded if rank == source else torch.zeros(40))


@pytest.mark.parametrize("target", [0, 2])
@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
def test_reduce_gives_one_rank_the_mean(codec: Codec, target: int) -> None:
    xs = by_rank(3, 40)
    replies, _ = exchange_messages([Message(x, codec, route=reduce_to(target)) for x in xs])
    mean = torch.stack([reply.sent for reply in replies]).mean(0)
    for rank, reply in enumerate(replies):
        torch.testing.assert_close(reply.reduced, mean if rank == target else torch.zeros(40))


@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
@pytest.mark.parametrize(("source", "target"), [(0, 2), (2, 1), (1, 1)])
def test_send_gives_one_rank_the_message(codec: Codec, source: int, target: int) -> None:
    xs = by_rank(3, 40)
    replies, meters = exchange_messages([Message(x, codec, route=send(source, target)) for x in xs])
    decoded = payload.decode(payload.encode(xs[source], codec, 0), codec, 0, xs[0])
    for rank, reply in enumerate(replies):
        assert torch.equal(reply.reduced, decoded if rank == target else torch.zeros(40))
        assert torch.equal(reply.sent, decoded if rank == source else torch.zeros(40))
    assert {(rank, to) for rank, meter in enumerate(meters) for to, n in meter.sent.items() if n} <= {(source, target)}


@pytest.mark.parametrize("codec", [Identity(), Entropy(), Quantize(8)], ids=repr)
def test_gather_gives_one_rank_all_messages(codec: Codec) -> None:
    xs = by_rank(3, 40)
    replies, meters = exchange_messages([Message(x, codec, route=gather_to(1)) for x in xs])
    assert torch.equal(replies[1].reduced, torch.stack([reply.sent for reply in replies]))
    for rank in (0, 2):
        assert torch.equal(replies[rank].reduced, torch.zeros(40))
        assert set(meters[rank].sent) == {1}
    assert not meters[1].sent


def test_a_message_to_some_ranks_with_another_route_is_an_error() -> None:
    some = Peers("some", ((0, 0.5), (1, 0.5)))
    messages = [Message(x, Identity(), route=broadcast_from(0)) for x in by_rank(3, 4)]
    with pytest.raises(ValueError, match="must have the route all_reduce, not broadcast from 0"):
        Simulated(3).run([lockstep([(some, once(message))]) for message in messages])


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        (Route(Collective.REDUCE_SCATTER, source=0), "REDUCE_SCATTER takes no source"),
        (Route(Collective.ALL_REDUCE, target=1), "ALL_REDUCE takes no target"),
        (Route(Collective.BROADCAST), "BROADCAST takes a source"),
        (Route(Collective.REDUCE), "REDUCE takes a target"),
        (Route(Collective.GATHER), "GATHER takes a target"),
        (Route(Collective.SEND, source=0), "SEND takes a target"),
    ],
    ids=str,
)
def test_a_route_that_names_too_few_or_too_many_ranks_is_an_error(route: Route, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        exchange_messages([Message(x, Identity(), route=route) for x in by_rank(2, 4)])


def test_half_precision_numbers_are_summed_in_single_precision() -> None:
    # 0.0005 is less than half a step of float16 at 1: added one by one in float16, all small ones would vanish.
    xs = [torch.tensor([1.0, 1.0], dtype=torch.float16)] + [torch.full((2,), 4e-4, dtype=torch.float16)] * 15
    replies, _ = exchange_messages([Message(x, Identity()) for x in xs])
    expected = torch.stack(xs).double().mean(0).half()
    assert torch.equal(replies[0].reduced, expected)


# --- bytes


def meters_of(messages: list[Message]) -> list[Meter]:
    return exchange_messages(messages)[1]


@every_size
@pytest.mark.parametrize(
    ("codec", "entry_bytes"), [(Identity(), 4), (Cast("float16"), 2), (RandomK(0.5), 2)], ids=lambda v: repr(v)
)
def test_a_linear_codec_has_the_link_bytes_of_a_ring_all_reduce(codec: Codec, entry_bytes: int, ranks: int) -> None:
    size = entry_bytes * ENTRIES
    for meter in meters_of([Message(x, codec) for x in by_rank(ranks, ENTRIES)]):
        assert meter.payload_bytes == size
        assert meter.link_bytes == 2 * (ranks - 1) * size // ranks
        assert meter.rounds == 1


@every_size
def test_an_encoded_message_is_received_from_every_other_rank(ranks: int) -> None:
    sealed = payload.encoded_bytes(Quantize(8), torch.zeros(ENTRIES))
    assert sealed == ENTRIES + 2 * 4
    for meter in meters_of([Message(x, Quantize(8)) for x in by_rank(ranks, ENTRIES)]):
        assert meter.payload_bytes == sealed
        assert meter.link_bytes == (ranks - 1) * sealed


@every_size
def test_a_message_of_variable_length_costs_its_bytes_and_its_length(ranks: int) -> None:
    xs = by_rank(ranks, ENTRIES)
    for rank, x in enumerate(xs):
        x[100 * rank :] = 0  # every rank has more non-zero entries than the one before
    lengths = [payload.encode(x, Nonzero(), 0).numel() for x in xs]
    assert len(set(lengths)) == ranks
    for rank, meter in enumerate(meters_of([Message(x, Nonzero()) for x in xs])):
        out, in_ = (ranks - 1) * lengths[rank], sum(lengths) - lengths[rank]
        assert meter.payload_bytes == lengths[rank]
        assert meter.link_bytes == 8 * (ranks - 1) + max(out, in_)
        assert meter.rounds == 1


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_server_carries_the_messages_of_all_ranks_and_a_worker_its_own(ranks: int) -> None:
    size = 4 * ENTRIES
    xs = by_rank(ranks, ENTRIES)
    server, *workers = meters_of([Message(x, Identity(), route=reduce_to(0)) for x in xs])
    assert server.link_bytes == (ranks - 1) * size
    assert {worker.link_bytes for worker in workers} == {size}
    assert {worker.payload_bytes for worker in workers} == {size}
    server, *workers = meters_of([Message(x, Identity(), route=broadcast_from(0)) for x in xs])
    assert (server.payload_bytes, server.link_bytes) == (size, (ranks - 1) * size)
    assert {(worker.payload_bytes, worker.link_bytes) for worker in workers} == {(0, size)}


@every_size
def test_reduce_scatter_and_all_gather_carry_one_shard_per_other_rank(ranks: int) -> None:
    shard = 4 * ENTRIES // ranks
    for meter in meters_of([Message(x, Identity(), route=REDUCE_SCATTER) for x in by_rank(ranks, ENTRIES)]):
        assert (meter.payload_bytes, meter.link_bytes) == (4 * ENTRIES, (ranks - 1) * shard)
    for meter in meters_of([Message(x, Identity(), route=ALL_GATHER) for x in by_rank(ranks, ENTRIES // ranks)]):
        assert (meter.payload_bytes, meter.link_bytes) == (shard, (ranks - 1) * shard)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_reducer_costs_the_sum_of_its_rounds(ranks: int) -> None:
    reducer, states = started(Sharded(Quantize(8), Quantize(8)), torch.zeros(512 * 84), ranks)
    sealed = 512 * 84 + 4 * 84
    for meter in step(reducer, by_rank(ranks, 512 * 84), states).meters:
        assert meter.rounds == 2
        assert meter.payload_bytes == sealed + sealed // ranks
        assert meter.link_bytes == 2 * (ranks - 1) * sealed // ranks


def test_messages_of_one_round_count_as_one_round() -> None:
    def both(rank: int) -> Any:
        dense = once(Message(random(ENTRIES, seed=rank), Identity()))
        return exchange(2, dense, once(Message(random(ENTRIES, seed=rank), Quantize(8))))

    transport = Simulated(2)
    transport.run([both(rank) for rank in range(2)])
    for meter in transport.meters:
        assert meter.rounds == 1
        assert meter.payload_bytes == 4 * ENTRIES + ENTRIES + 8
        assert meter.link_bytes == 4 * ENTRIES + ENTRIES + 8


def test_meters_add_up_over_exchanges() -> None:
    transport = Simulated(2)
    for _ in range(3):
        transport.run([exchange(2, once(Message(random(10), Identity()))) for _ in range(2)])
    assert [meter.rounds for meter in transport.meters] == [3, 3]
    assert [meter.payload_bytes for meter in transport.meters] == [120, 120]


# --- lockstep

x = random(6)
MISMATCHES: dict[str, tuple[Callable[[], list[Message]], Callable[[], list[Message]], str]] = {
    "different shapes": (
        lambda: [Message(x, Identity())],
        lambda: [Message(random(7), Identity())],
        r"rank 1 sends a torch.float32 tensor of shape \(7,\).* where rank 0 sends .* shape \(6,\)",
    ),
    "different shapes of equal size": (
        lambda: [Message(x, Identity())],
        lambda: [Message(x.view(2, 3), Identity())],
        r"rank 1 sends .* shape \(2, 3\).* where rank 0 sends .* shape \(6,\)",
    ),
    "different dtypes": (
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
    "different sources": (
        lambda: [Message(x, Identity(), route=broadcast_from(0))],
        lambda: [Message(x, Identity(), route=broadcast_from(1))],
        "rank 1 sends .* from 1 .*where rank 0 sends .* from 0",
    ),
    "one stops early": (
        lambda: [Message(x, Identity())] * 2,
        lambda: [Message(x, Identity())],
        "rank 1 has finished, while rank 0 sends a torch.float32 tensor",
    ),
    "one sends nothing": (
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


@pytest.mark.parametrize("mismatch", MISMATCHES)
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_with_different_messages_are_an_error_that_shows_both(mismatch: str, size: int) -> None:
    first, second, problem = MISMATCHES[mismatch]
    exchanges = [exchange(size, once(*(second() if rank == 1 else first()))) for rank in range(size)]
    with pytest.raises(LockStepError, match=problem):
        Simulated(size).run(exchanges)


@pytest.mark.parametrize("more", [0, 1])
def test_a_rank_with_more_messages_in_a_round_is_an_error(more: int) -> None:
    exchanges = [
        exchange(2, *(once(Message(x, Identity())) for _ in range(2 if rank == more else 1))) for rank in range(2)
    ]
    with pytest.raises(LockStepError, match=r"sends nothing where|where rank 0 sends nothing"):
        Simulated(2).run(exchanges)


def test_different_topics_are_an_error() -> None:
    exchanges = [
        exchange(2, once(Message(x, Identity())), peers=Peers(topic, ((0, 0.5), (1, 0.5))))
        for topic in ("here", "there")
    ]
    with pytest.raises(LockStepError, match=r"on 'there' where rank 0 sends .* on 'here'"):
        Simulated(2).run(exchanges)


def test_an_error_on_one_rank_is_raised_unchanged() -> None:
    def failing() -> Generator[Message, Reply, None]:
        yield Message(x, Identity())
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Simulated(2).run([exchange(2, once(Message(x, Identity()))), exchange(2, failing())])


# --- arguments


def test_a_wrong_number_of_exchanges_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 exchanges were given for 2 ranks"):
        Simulated(2).run([exchange(2)])


@pytest.mark.parametrize("ranks", [0, -1])
def test_no_ranks_is_an_error(ranks: int) -> None:
    with pytest.raises(ValueError, match=f"1 rank or more, not {ranks}"):
        Simulated(ranks)


@pytest.mark.parametrize("weights", [((2, 1.0),), ((1, 0.5), (0, 0.5)), ((0, 0.5), (0, 0.5)), ((0, 0.3),) * 3])
def test_invalid_weights_of_peers_are_an_error(weights: tuple[tuple[int, float], ...]) -> None:
    exchanges = [exchange(2, once(Message(x, Identity())), peers=Peers("odd", weights)) for _ in range(2)]
    with pytest.raises(ValueError, match="must weight ranks from 0 to 1"):
        Simulated(2).run(exchanges)


@pytest.mark.parametrize("route", [broadcast_from(2), reduce_to(2), send(0, 2)], ids=str)
def test_a_route_to_a_rank_that_does_not_exist_is_an_error(route: Route) -> None:
    with pytest.raises(ValueError, match=f"a message has the route {route}, but there are only 2 ranks"):
        exchange_messages([Message(x, Identity(), route=route)] * 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("codec", [Nonzero(), TopK(0.5), Identity()], ids=repr)
def test_sums_in_16_bits_are_rounded_once(codec: Codec, dtype: torch.dtype) -> None:
    ranks = 32
    xs = by_rank(ranks, 200, dtype=dtype)
    replies, _ = exchange_messages([Message(x, codec, lazy=True) for x in xs])
    exact = sum(materialize(reply.sent).double() for reply in replies) / ranks
    assert torch.equal(materialize(replies[0].reduced), exact.to(dtype))
