"""Talks in worlds of their own: some of the ranks, numbered from 0, hear and count what as many ranks would alone."""

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

WORLDS = ((0, 2, 5), (1,), (3, 4))
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


def said(xs: list[Tensor], method: Codec | Reducer, size: int) -> Any:
    """A talk of several tensors and several steps."""
    states = [as_reducer(method).init(x, seed) for seed, x in enumerate(xs)]
    heard = []
    for step in range(2):
        talks = [as_reducer(method).reduce(x * (1 + step), s) for x, s in zip(xs, states, strict=True)]
        outcomes = yield from lockstep([(all_ranks(size), talk) for talk in talks])
        states = [state for _, state in outcomes]
        heard += [materialize(reply.reduced) for reply, _ in outcomes]
    return heard


def tensors() -> list[list[Tensor]]:
    return [list(xs) for xs in zip(by_rank(RANKS, 9, 8), by_rank(RANKS, 21, seed=5), strict=True)]


def world_of(rank: int) -> tuple[int, ...]:
    return next(ranks for ranks in WORLDS if rank in ranks)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_each_world_hears_what_it_would_alone(method: Codec | Reducer) -> None:
    xs, together_ = tensors(), Simulated(RANKS)
    heard = together_.run([within(world_of(r), said(xs[r], method, len(world_of(r)))) for r in range(RANKS)])
    for ranks in WORLDS:
        alone = Simulated(len(ranks))
        expected = alone.run([said(xs[r], method, len(ranks)) for r in ranks])
        for i, r in enumerate(ranks):
            assert all(map(same_bits, heard[r], expected[i]))
            here, there = together_.meters[r], alone.meters[i]
            assert (here.payload_bytes, here.link_bytes) == (there.payload_bytes, there.link_bytes)
            assert here.sent == {ranks[j]: nbytes for j, nbytes in there.sent.items()}
            assert here.received == {ranks[j]: nbytes for j, nbytes in there.received.items()}


def test_worlds_within_worlds() -> None:
    """Of ranks 1, 3, 5, those numbered 0 and 2: ranks 1 and 5."""
    xs = by_rank(RANKS, 12)

    def talk(rank: int) -> Any:
        if rank not in (1, 5):
            return said([], Identity(), 1)
        return within((1, 3, 5), within((0, 2), said([xs[rank]], Identity(), 2)))

    heard = Simulated(RANKS).run([talk(rank) for rank in range(RANKS)])
    assert same_bits(heard[1][0], (xs[1] + xs[5]) / 2)
    assert same_bits(heard[5][0], heard[1][0])


def rows_then_columns(rank: int, xs: list[Tensor], pause: Callable[[int], int]) -> Any:
    """Worlds of 2 along one side of a grid, then along the other; some have more to say than others."""
    row, column = (rank // 2 * 2, rank // 2 * 2 + 1), (rank % 2, rank % 2 + 2)
    heard = []
    for _ in range(pause(row[0])):
        heard += yield from within(row, said(xs, Entropy(), 2))
    heard += yield from within(column, said(xs, Identity(), 2))
    return heard


def test_worlds_need_not_take_equally_long() -> None:
    """Ranks that go on to speak to others wait for these, as over a network."""
    xs = by_rank(4, 7)
    heard = Simulated(4).run([rows_then_columns(r, [xs[r]], lambda first: 3 if first else 1) for r in range(4)])
    for rank in range(4):
        other = (rank + 2) % 4
        torch.testing.assert_close(heard[rank][-2], (xs[rank] + xs[other]) / 2)
        assert len(heard[rank]) == (8 if rank > 1 else 4)


def on_real_ranks() -> list[list[Tensor]]:
    transport = ProcessGroupTransport()
    xs = by_rank(transport.size, 33)
    heard = transport.run(rows_then_columns(transport.rank, [xs[transport.rank]], lambda first: 3 if first else 1))
    for method in METHODS:
        ranks = (0, 2, 3) if transport.rank != 1 else (1,)
        heard += transport.run(within(ranks, said([xs[transport.rank]], method, len(ranks))))
    meter = transport.meter
    return [heard, meter.link_bytes, meter.sent, meter.received]


def test_real_ranks_hear_the_same() -> None:
    xs, sender = by_rank(4, 33), Simulated(4)
    heard = sender.run([rows_then_columns(r, [xs[r]], lambda first: 3 if first else 1) for r in range(4)])
    for method in METHODS:
        ranks = [(0, 2, 3) if r != 1 else (1,) for r in range(4)]
        more = sender.run([within(ranks[r], said([xs[r]], method, len(ranks[r]))) for r in range(4)])
        heard = [here + there for here, there in zip(heard, more, strict=True)]
    for rank, (real, link_bytes, sent, received) in enumerate(run(on_real_ranks, ranks=4)):
        meter = sender.meters[rank]
        assert same(real, heard[rank])
        assert (link_bytes, sent, received) == (meter.link_bytes, meter.sent, meter.received)


def test_neighbours_may_have_a_world_of_their_own() -> None:
    """A strategy does not know that there are others."""
    xs = by_rank(RANKS, 5, 4)
    ranks = (0, 2, 3, 5)

    def mixed(rank: int, size: int, x: Tensor) -> tuple[Tensor, Any]:
        model = torch.nn.Linear(4, 5, bias=False)
        model.weight.data.copy_(x)
        replica, strategy = replica_of(model, rank=rank, size=size), Gossip(Identity())
        return model.weight.detach(), strategy.before_update(replica, strategy.init(replica))

    alone = [mixed(i, 4, xs[r]) for i, r in enumerate(ranks)]
    with torch.no_grad():
        Simulated(4).run([talk for _, talk in alone])
    inside = {r: mixed(i, 4, xs[r]) for i, r in enumerate(ranks)}
    with torch.no_grad():
        Simulated(RANKS).run(
            [within(ranks, inside[r][1]) if r in inside else said([], Identity(), 1) for r in range(6)]
        )
    assert all(same_bits(inside[r][0], alone[i][0]) for i, r in enumerate(ranks))


@pytest.mark.parametrize("ranks", [(1, 2), (2, 0), (0, 0), (0, 3), ()])
def test_a_world_has_its_speaker_and_each_rank_once(ranks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rank 0 of 3 cannot send in the group"):
        Simulated(3).run([within(ranks, said([torch.ones(2)], Identity(), 2)) for _ in range(3)])


def test_a_round_has_one_world() -> None:
    def twice() -> Any:
        def once() -> Any:
            return (yield Message(torch.ones(2), Identity()))

        apart = Peers("odd", ((0, 1.0),), within=(0,))
        return (yield from lockstep([(all_ranks(2), once()), (apart, once())]))

    with pytest.raises(ValueError, match="messages of a round need one group of ranks"):
        Simulated(2).run([twice() for _ in range(2)])


def test_worlds_that_wait_for_each_other_are_an_error_and_not_a_hang() -> None:
    def talk(rank: int) -> Any:
        mine = within((rank, rank + 1) if rank < 2 else (0, 2), said([torch.ones(2)], Entropy(), 2))
        return (yield from mine)

    with pytest.raises(LockStepError, match="rank 0 waits for rank 1, which waits for others"):
        Simulated(3).run([talk(rank) for rank in range(3)])
