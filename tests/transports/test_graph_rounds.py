"""Messages to neighbors only: what they receive, what it costs, and which ranks wait for which."""

from typing import Any

import pytest
import torch
from torch import Tensor

from thinwire import Identity, Nonzero, Quantize
from thinwire.extend import Codec, Message, Peers, Route, broadcast_from, lockstep, reduce_to
from thinwire.simulate import LockStepError, Simulated
from thinwire.topologies import Complete, Edges, ErdosRenyi, Exponential, Graph, Ring, Star, Topology, Torus

from ..helpers import by_rank, same_bits

RANKS = 6
SHAPES = ((40,), (7, 3), (1,))
DIRECTED = Edges(((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (0, 4)), directed=True)
GRAPHS = [Ring(), Torus(), Star(), Complete(), Exponential(), Exponential(2), ErdosRenyi(0.4), DIRECTED]
every_graph = pytest.mark.parametrize("kind", GRAPHS, ids=repr)
every_codec = pytest.mark.parametrize("codec", [Identity(), Quantize(8), Nonzero()], ids=repr)


def mixing(graph: Graph, rank: int, xs: list[Tensor], codec: Codec, rounds: int, own: bool = True) -> Any:
    """One rank's exchange of several tensors, over a number of rounds of a graph."""

    def once(x: Tensor) -> Any:
        return (yield Message(x, codec))

    replies = []
    for k in range(rounds):
        peers = graph.row(rank, k) if own else graph.others(rank, k)
        replies.append((yield from lockstep([(peers, once(x)) for x in xs])))
    return replies


def tensors(seed: int = 0) -> list[list[Tensor]]:
    by_shape = [by_rank(RANKS, *shape, seed=seed + i) for i, shape in enumerate(SHAPES)]
    return [list(xs) for xs in zip(*by_shape, strict=True)]


@every_graph
@every_codec
@pytest.mark.parametrize("own", [True, False], ids=["including own", "others only"])
def test_each_rank_receives_the_sum_with_its_row_of_weights(kind: Topology, codec: Codec, own: bool) -> None:
    graph, xs = kind.of(RANKS), tensors()
    rounds = 2 * len(graph.phases)
    replies = Simulated(RANKS).run([mixing(graph, r, xs[r], codec, rounds, own) for r in range(RANKS)])
    for k in range(rounds):
        for i in range(len(SHAPES)):
            sent = [replies[r][k][i].sent.double() for r in range(RANKS)]
            for r in range(RANKS):
                weights = [graph.weight(r, j, k) * (own or j != r) for j in range(RANKS)]
                expected = sum((w * y for w, y in zip(weights, sent, strict=True)), torch.zeros(SHAPES[i]).double())
                torch.testing.assert_close(replies[r][k][i].reduced.double(), expected, rtol=1e-3, atol=1e-3)


@every_graph
def test_each_round_sends_one_message_to_each_neighbor(kind: Topology) -> None:
    graph, xs = kind.of(RANKS), tensors()
    transport = Simulated(RANKS)
    transport.run([mixing(graph, r, xs[r], Identity(), len(graph.phases)) for r in range(RANKS)])
    nbytes = sum(x.nbytes for x in xs[0])
    for rank, meter in enumerate(transport.meters):
        receivers = [graph.row(rank, k).receivers or () for k in range(len(graph.phases))]
        all_receivers = [r for phase in receivers for r in phase]
        assert meter.sent == {r: nbytes * all_receivers.count(r) for r in all_receivers}
        assert meter.payload_bytes == nbytes * len(graph.phases), "a message to all neighbors counts once"
        assert meter.link_bytes >= sum(meter.sent.values()) / len(graph.phases)
    for rank, meter in enumerate(transport.meters):
        assert meter.received == {r: other.sent[rank] for r, other in enumerate(transport.meters) if rank in other.sent}


@pytest.mark.parametrize("kind", [Ring(), Star(), Complete(), ErdosRenyi(0.4)], ids=repr)
def test_both_ends_of_an_edge_receive_the_same_bits(kind: Topology) -> None:
    graph, xs = kind.of(RANKS), by_rank(RANKS, 33)

    def over_edges(rank: int) -> Any:
        def once() -> Any:
            return (yield Message(xs[rank], Identity()))

        edges = graph.edges_of(rank)
        replies = yield from lockstep([(edge, once()) for edge in edges])
        return {edge.topic: reply.reduced for edge, reply in zip(edges, replies, strict=True)}

    received = Simulated(RANKS).run([over_edges(rank) for rank in range(RANKS)])
    for low, high in graph.edges:
        first, second = received[low][f"{low}-{high}"], received[high][f"{low}-{high}"]
        assert same_bits(first, second)
        assert same_bits(first, xs[high] - xs[low])


def test_neighbors_with_different_codecs_are_an_error_that_names_both() -> None:
    graph = Ring().of(4)

    def exchange(rank: int, codec: Codec) -> Any:
        def once() -> Any:
            return (yield Message(torch.zeros(3), codec))

        return lockstep([(graph.row(rank), once())])

    exchanges = [exchange(rank, Quantize(8) if rank == 2 else Identity()) for rank in range(4)]
    with pytest.raises(LockStepError, match=r"rank 2 sends .*Quantize.* to rank 1, which expects .*Identity"):
        Simulated(4).run(exchanges)


@pytest.mark.parametrize(
    ("peers", "problem"),
    [
        (Peers("odd", ((0, 1.0),), (1, 7)), "has receivers that do not exist: there are 2 ranks"),
        (Peers("odd", ((1, 1.0),)), "does not include rank 0"),
    ],
)
def test_invalid_peers_are_an_error(peers: Peers, problem: str) -> None:
    def once() -> Any:
        return (yield Message(torch.zeros(3), Identity()))

    with pytest.raises(ValueError, match=problem):
        Simulated(2).run([lockstep([(peers, once())]), lockstep([(peers, once())])])


@pytest.mark.parametrize("route", [broadcast_from(0), reduce_to(0)], ids=str)
def test_a_message_to_some_ranks_with_another_route_is_an_error(route: Route) -> None:
    def once() -> Any:
        return (yield Message(torch.zeros(3), Identity(), route=route))

    edge = Peers("edge", ((0, -1.0), (1, 1.0)))
    with pytest.raises(ValueError, match=f"must have the route all_reduce, not {route}"):
        Simulated(3).run([lockstep([(edge, once())]) for _ in range(3)])
