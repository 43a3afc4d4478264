"""Custom topologies: edges and weight matrices."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinwire import Edges, Ring, Weights, parse
from thinwire.extend import Graph, Topology
from thinwire.topologies import surviving_topology


@st.composite
def connected_edges(draw: st.DrawFn) -> tuple[int, tuple[tuple[int, int], ...]]:
    """A connected list of edges: a tree, and more edges."""
    size = draw(st.integers(2, 12))
    tree = [(draw(st.integers(0, rank - 1)), rank) for rank in range(1, size)]
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda pair: pair[0] != pair[1])
    return size, tuple(draw(st.permutations([*tree, *draw(st.lists(pairs, max_size=10))])))


@st.composite
def matrices(draw: st.DrawFn) -> Weights:
    """Positive weights whose columns sum to 1."""
    size = draw(st.integers(1, 6))
    column = st.lists(st.floats(1e-3, 1.0), min_size=size, max_size=size)
    weights = np.array([draw(column) for _ in range(size)]).T
    return Weights(tuple(map(tuple, (weights / weights.sum(0)).tolist())))


def columns_sum_to_one(graph: Graph) -> bool:
    return all(np.allclose(phase.sum(0), 1, rtol=0, atol=1e-12) for phase in graph.phases)


@given(sample=connected_edges())
def test_edges_have_metropolis_weights(sample: tuple[int, tuple[tuple[int, int], ...]]) -> None:
    size, edges = sample
    kind = Edges(edges)
    assert parse(repr(kind)) == kind
    graph = kind.of(size)
    assert columns_sum_to_one(graph)
    assert graph.symmetric
    assert graph.doubly_stochastic
    assert graph.edges == tuple(sorted({(min(edge), max(edge)) for edge in edges}))
    assert Edges(graph.edges).of(size).phases[0].tolist() == graph.phases[0].tolist()


@given(sample=connected_edges())
def test_directed_edges_share_the_weight_of_the_sender(sample: tuple[int, tuple[tuple[int, int], ...]]) -> None:
    size, edges = sample
    kind = Edges((*edges, *((j, i) for i, j in edges[: size // 2]), *around(size)), directed=True)
    assert parse(repr(kind)) == kind
    graph = kind.of(size)
    assert columns_sum_to_one(graph)
    weights_of_0 = {weight for weight in graph.phases[0][:, 0].tolist() if weight}
    assert len(weights_of_0) == 1, "equal weights for itself and every receiver"
    if not graph.symmetric:
        assert set(graph.edges) == set(kind.edges)


def around(size: int) -> list[tuple[int, int]]:
    return [(rank, (rank + 1) % size) for rank in range(size)]


@given(kind=matrices())
def test_weights_are_used_unchanged(kind: Weights) -> None:
    assert parse(repr(kind)) == kind
    graph = kind.of(len(kind.rows))
    assert graph.phases[0].tolist() == [list(row) for row in kind.rows]
    assert columns_sum_to_one(graph)


@given(kind=matrices(), data=st.data())
def test_weights_for_failed_ranks_return_to_their_senders(kind: Weights, data: st.DataObject) -> None:
    size = len(kind.rows)
    survivors = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
    remaining = kind.for_survivors(survivors, size).of(len(survivors))
    assert columns_sum_to_one(remaining)
    before = kind.of(size)
    for i, was_i in enumerate(survivors):
        for j, was_j in enumerate(survivors):
            if i != j:
                assert remaining.weight(i, j) == before.weight(was_i, was_j)


def test_rounding_gives_no_negative_weights() -> None:
    # Tenths that sum to slightly more than 1, with zeros on the diagonal.
    weights = np.zeros((4, 4))
    for j in range(4):
        for step, tenth in enumerate((0.1, 0.2, 0.7 + 2**-52), start=1):
            weights[(j + step) % 4, j] = tenth
    kind = Weights(tuple(map(tuple, weights.tolist())))
    assert min(min(row) for row in kind.for_survivors([0, 1, 2, 3], 4).rows) == 0


def test_edges_of_failed_ranks_are_removed() -> None:
    kind = Edges(((0, 1), (1, 2), (2, 3), (3, 0)))
    assert kind.for_survivors([0, 1, 3], 4) == Edges(((0, 1), (2, 0)))
    assert kind.for_survivors([0, 1, 3], 4).of(3).edges == ((0, 1), (0, 2))
    assert Edges(((0, 1), (1, 0)), directed=True).for_survivors([0, 1], 2).directed


def test_survivors_that_are_not_connected_are_an_error() -> None:
    with pytest.raises(
        ValueError, match="your graph: the graph is not connected; nothing from rank 0 ever reaches rank 1"
    ):
        Edges(((0, 1), (1, 2))).for_survivors([0, 2], 3).of(2)
    line = ((0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5))
    with pytest.raises(ValueError, match="your weights: the graph is not connected"):
        Weights(line).for_survivors([0, 2], 3)


def test_a_directed_ring_is_doubly_stochastic_until_an_edge_is_added() -> None:
    ring = Edges(tuple(around(4)), directed=True).of(4)
    assert ring.doubly_stochastic
    assert not ring.symmetric
    graph = Edges((*around(4), (0, 2)), directed=True).of(4)
    assert not graph.doubly_stochastic
    assert dict(graph.row(2).weights) == pytest.approx({0: 1 / 3, 1: 1 / 2, 2: 1 / 2})
    assert graph.row(0).receivers == (1, 2)


@pytest.mark.parametrize(
    ("edges", "problem"),
    [
        (((0, 1), (2, 2)), r"^Edges joins two different ranks from 0 on, not \(2, 2\)$"),
        (((0, -1),), r"^Edges joins two different ranks from 0 on, not \(0, -1\)$"),
        (((0, 1, 2),), r"^Edges takes pairs of ranks, such as \(\(0, 1\), \(1, 2\)\), not \(\(0, 1, 2\),\)$"),
        (((0, 0.5),), "^Edges takes pairs of ranks"),
        (("01", "12"), "^Edges takes pairs of ranks"),
        ((0, 1), r"^Edges takes pairs of ranks, such as .*, not \(0, 1\)$"),
        (None, "^Edges takes pairs of ranks, such as .*, not None$"),
    ],
)
def test_invalid_edges_are_an_error_that_shows_them(edges: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Edges(edges)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ((), r"^Weights takes as many numbers in each row as there are rows, not \(\)$"),
        (((0.5, 0.5),), "^Weights takes as many numbers in each row as there are rows"),
        (((0.5, 0.5), (0.5,)), "^Weights takes as many numbers in each row as there are rows"),
        (((1.5, 0.5), (-0.5, 0.5)), "^your weights: rank 1 weighs rank 0 by -0.5, but weights must be 0 or more$"),
        (((float("nan"), 0.5), (0.5, 0.5)), "^your weights: rank 0 weighs rank 0 by nan"),
        (((0.5, 0.5), (0.4, 0.5)), r"^your weights: the weights of rank 0's messages \(column 0\) sum to 0.9"),
        (((1, 0), (0, 1)), "^your weights: the graph is not connected; nothing from rank 0 ever reaches rank 1$"),
        ((("a",),), r"^Weights takes rows of numbers, not \(\('a',\),\)$"),
        (7, "^Weights takes rows of numbers, not 7$"),
    ],
)
def test_invalid_weights_are_an_error_at_construction(rows: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Weights(rows)


@pytest.mark.parametrize(
    ("kind", "size", "problem"),
    [
        (Edges(((0, 1), (1, 5))), 4, r"^the edge \(1, 5\) names rank 5, but there are only 4 ranks$"),
        (
            Edges(((0, 1), (2, 3))),
            4,
            "^your graph: the graph is not connected; nothing from rank 0 ever reaches rank 2$",
        ),
        (
            Edges(((0, 1), (1, 2))),
            4,
            "^your graph: the graph is not connected; nothing from rank 0 ever reaches rank 3$",
        ),
        (Edges(((0, 1),), directed=True), 2, "not connected; nothing from rank 1 ever reaches rank 0$"),
        (Edges(()), 0, "^a graph has 1 rank or more, not 0$"),
        (Weights(((0.5, 0.5), (0.5, 0.5))), 3, "^these weights are of 2 ranks, not 3$"),
    ],
)
def test_a_world_size_that_does_not_fit_is_an_error(kind: Topology, size: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind.of(size)


def test_lists_and_arrays_are_converted_to_tuples() -> None:
    assert Edges([[0, 1], (1, np.int64(2))]) == Edges(((0, 1), (1, 2)))  # type: ignore[arg-type, list-item]
    assert Weights(np.full((2, 2), 0.5)) == Weights(((0.5, 0.5), (0.5, 0.5)))  # type: ignore[arg-type]
    assert hash(Edges([[0, 1]])) == hash(Edges(((0, 1),)))  # type: ignore[arg-type, list-item]
    assert repr(Edges([(0, np.int64(1))], directed=True)) == "Edges(((0, 1),), directed=True)"  # type: ignore[arg-type, list-item]


@dataclass(frozen=True, repr=False)
class Pairs(Topology):
    """A topology without graphs of an odd number of ranks."""

    def of(self, size: int) -> Graph:
        if size % 2:
            raise ValueError("odd")
        return Edges(tuple(combinations(range(size), 2))).of(size)


def test_a_topology_without_a_graph_for_the_survivors_becomes_their_edges() -> None:
    assert surviving_topology(Pairs(), [0, 1, 3, 4], 6) == Pairs()
    assert surviving_topology(Pairs(), [0, 1, 3], 4) == Edges(((0, 1), (0, 2), (1, 2)))
    assert surviving_topology(Ring(), [0, 2], 3) == Ring()
