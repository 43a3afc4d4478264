"""Exchanges within groups: the members, numbered from 0, receive and count the same as a cluster of only them would."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attach.processes import run
from tests.attach.training import same
from thinwire import Average, Cast, Entropy, ErrorFeedback, Gossip, Identity, PowerSGD, Quantize, Server, Sharded
from thinwire.core.lazy import materialize
from thinwire.extend import Codec, Message, Peers, ProcessGroupTransport, Reducer, all_ranks, lockstep
from thinwire.reducers import as_reducer
from thinwire.simulate import LockStepError, Simulated, replica_of
from thinwire.topologies import within

from ..helpers import by_rank, same_bits

GROUPS = ((0, 2, 5), (1,), (3, 4))
RANKS = 6
METHODS: list[Codec | Reducer] = [
    Identity(),
    Cast("float16"),
    Entropy(),
    Average(Quantize(4)),
    Sharded(Quantize(8), Quantize(8)),
    Server(Quantize(8), Identity(), rank=0),
    ErrorFeedback(PowerSGD(2)),
]


def reduced(xs: list[Tensor], method: Codec | Reducer, size: int) -> Any:
    """An exchange that reduces several tensors in several steps."""
    states = [as_reducer(method).init(x, seed) for seed, x in enumerate(xs)]
    results = []
    for step in range(2):
        conversations = [as_reducer(method).reduce(x * (1 + step), s) for x, s in zip(xs, states, strict=True)]
        replies = yield from lockstep([(all_ranks(size), conversation) for conversation in conversations])
        states = [state for _, state in replies]
        results += [materialize(reply.reduced) for reply, _ in replies]
    return results


def tensors() -> list[list[Tensor]]:
    return [list(xs) for xs in zip(by_rank(RANKS, 9, 8), by_rank(RANKS, 21, seed=5), strict=True)]


def group_of(rank: int) -> tuple[int, ...]:
    return next(ranks for ranks in GROUPS if rank in ranks)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_group_receives_the_same_as_a_cluster_of_its_members(method: Codec | Reducer) -> None:
    xs, cluster = tensors(), Simulated(RANKS)
    received = cluster.run([within(group_of(r), reduced(xs[r], method, len(group_of(r)))) for r in range(RANKS)])
    for ranks in GROUPS:
        alone = Simulated(len(ranks))
        expected = alone.run([reduced(xs[r], method, len(ranks)) for r in ranks])
        for i, r in enumerate(ranks):
            assert all(map(same_bits, received[r], expected[i]))
            meter, meter_alone = cluster.meters[r], alone.meters[i]
            assert (meter.payload_bytes, meter.link_bytes) == (meter_alone.payload_bytes, meter_alone.link_bytes)
            assert meter.sent == {ranks[j]: nbytes for j, nbytes in meter_alone.sent.items()}
            assert meter.received == {ranks[j]: nbytes for j, nbytes in meter_alone.received.items()}


def test_groups_may_be_nested() -> None:
    """In the group of ranks 1, 3 and 5, members 0 and 2 form a group: ranks 1 and 5."""
    xs = by_rank(RANKS, 12)

    def exchange(rank: int) -> Any:
        if rank not in (1, 5):
            return reduced([], Identity(), 1)
        return within((1, 3, 5), within((0, 2), reduced([xs[rank]], Identity(), 2)))

    received = Simulated(RANKS).run([exchange(rank) for rank in range(RANKS)])
    assert same_bits(received[1][0], (xs[1] + xs[5]) / 2)
    assert same_bits(received[5][0], received[1][0])


def rows_then_columns(rank: int, xs: list[Tensor], repeats: Callable[[int], int]) -> Any:
    """Exchange in the rows of a grid of 2 x 2, then in its columns; `repeats` is by the first rank of a row."""
    row, column = (rank // 2 * 2, rank // 2 * 2 + 1), (rank % 2, rank % 2 + 2)
    received = []
    for _ in range(repeats(row[0])):
        received += yield from within(row, reduced(xs, Entropy(), 2))
    received += yield from within(column, reduced(xs, Identity(), 2))
    return received


def test_groups_may_have_different_numbers_of_rounds() -> None:
    """Ranks that finish early wait for the members of their next group, as over a network."""
    xs = by_rank(4, 7)
    received = Simulated(4).run([rows_then_columns(r, [xs[r]], lambda first: 3 if first else 1) for r in range(4)])
    for rank in range(4):
        other = (rank + 2) % 4
        torch.testing.assert_close(received[rank][-2], (xs[rank] + xs[other]) / 2)
        assert len(received[rank]) == (8 if rank > 1 else 4)


def on_real_ranks() -> list[list[Tensor]]:
    transport = ProcessGroupTransport()
    xs = by_rank(transport.size, 33)
    results = transport.run(rows_then_columns(transport.rank, [xs[transport.rank]], lambda first: 3 if first else 1))
    for method in METHODS:
        ranks = (0, 2, 3) if transport.rank != 1 else (1,)
        results += transport.run(within(ranks, reduced([xs[transport.rank]], method, len(ranks))))
    meter = transport.meter
    return [results, meter.link_bytes, meter.sent, meter.received]


def test_real_ranks_receive_the_same() -> None:
    xs, simulated = by_rank(4, 33), Simulated(4)
    results = simulated.run([rows_then_columns(r, [xs[r]], lambda first: 3 if first else 1) for r in range(4)])
    for method in METHODS:
        ranks = [(0, 2, 3) if r != 1 else (1,) for r in range(4)]
        more = simulated.run([within(ranks[r], reduced([xs[r]], method, len(ranks[r]))) for r in range(4)])
        results = [first + second for first, second in zip(results, more, strict=True)]
    for rank, (real, link_bytes, sent, received) in enumerate(run(on_real_ranks, ranks=4)):
        meter = simulated.meters[rank]
        assert same(real, results[rank])
        assert (link_bytes, sent, received) == (meter.link_bytes, meter.sent, meter.received)


def test_gossip_within_a_group_equals_gossip_of_its_members_alone() -> None:
    """A strategy does not know that there are other ranks."""
    xs = by_rank(RANKS, 5, 4)
    ranks = (0, 2, 3, 5)

    def mixed(rank: int, size: int, x: Tensor) -> tuple[Tensor, Any]:
        model = torch.nn.Linear(4, 5, bias=False)
        model.weight.data.copy_(x)
        replica, strategy = replica_of(model, rank=rank, size=size), Gossip(Identity())
        return model.weight.detach(), strategy.before_update(replica, strategy.init(replica))

    alone = [mixed(i, 4, xs[r]) for i, r in enumerate(ranks)]
    with torch.no_grad():
        Simulated(4).run([exchange for _, exchange in alone])
    inside = {r: mixed(i, 4, xs[r]) for i, r in enumerate(ranks)}
    with torch.no_grad():
        Simulated(RANKS).run(
            [within(ranks, inside[r][1]) if r in inside else reduced([], Identity(), 1) for r in range(6)]
        )
    assert all(same_bits(inside[r][0], alone[i][0]) for i, r in enumerate(ranks))


@pytest.mark.parametrize("ranks", [(1, 2), (2, 0), (0, 0), (0, 3), ()])
def test_a_group_without_the_sender_or_out_of_order_is_an_error(ranks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rank 0 of 3 cannot send in the group"):
        Simulated(3).run([within(ranks, reduced([torch.ones(2)], Identity(), 2)) for _ in range(3)])


def test_a_round_with_messages_of_two_groups_is_an_error() -> None:
    def twice() -> Any:
        def once() -> Any:
            return (yield Message(torch.ones(2), Identity()))

        other = Peers("odd", ((0, 1.0),), within=(0,))
        return (yield from lockstep([(all_ranks(2), once()), (other, once())]))

    with pytest.raises(ValueError, match="messages of a round need one group of ranks"):
        Simulated(2).run([twice() for _ in range(2)])


def test_groups_that_wait_for_each_other_are_an_error() -> None:
    def exchange(rank: int) -> Any:
        return (yield from within((rank, rank + 1) if rank < 2 else (0, 2), reduced([torch.ones(2)], Entropy(), 2)))

    with pytest.raises(LockStepError, match="rank 0 waits for rank 1, which waits for others"):
        Simulated(3).run([exchange(rank) for rank in range(3)])
