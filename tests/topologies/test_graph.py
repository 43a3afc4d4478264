"""A graph is checked when it is made, and tells its figures."""

from math import inf

import numpy as np
import pytest

from thinwire.extend import Graph
from thinwire.topologies.graph import metropolis, reached

HALF = np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("phases", "problem"),
    [
        ([], "mine: a graph has weights of 1 rank or more for 1 round or more"),
        ([np.zeros((0, 0))], "mine: a graph has weights of 1 rank or more for 1 round or more"),
        ([np.ones((2, 3))], r"mine: weights are square, a row for each rank, not \(2, 3\)"),
        ([np.ones(3)], r"mine: weights are square, a row for each rank, not \(3,\)"),
        ([np.float64(1)], r"mine: weights are square, a row for each rank, not \(\)"),
        ([HALF, np.eye(3)], r"mine: weights are square, a row for each rank, not \(3, 3\)"),
        ([[[1.5, 0], [-0.5, 1]]], "mine: rank 1 weighs rank 0 by -0.5, where weights are 0 or more"),
        ([[[0.5, np.nan], [0.5, 0.5]]], "mine: rank 0 weighs rank 1 by nan, where weights are 0 or more"),
        ([[[0.5, 0.5], [np.inf, 0.5]]], "mine: rank 1 weighs rank 0 by inf, where weights are 0 or more"),
        (
            [[[0.5, 0.5], [0.5, 0.4]]],
            "mine: what rank 1 says is weighed by 0.9 in all, where the weights of each column",
        ),
        ([[[0.5, 0.5], [0.5 + 1e-8, 0.5]]], r"mine: what rank 0 says is weighed by 1.00000001 in all"),
        ([HALF, [[0.5, 0.5], [0.6, 0.5]]], "mine: what rank 0 says is weighed by 1.1 in all"),
        ([np.eye(2)], "mine: the graph is not connected; rank 1 never hears anything of rank 0"),
        ([[[0.5, 0], [0.5, 1]]], "mine: the graph is not connected; rank 0 never hears anything of rank 1"),
        ([[[1, 0.5], [0, 0.5]]], "mine: the graph is not connected; rank 1 never hears anything of rank 0"),
    ],
)
def test_what_cannot_be_is_refused_and_shown(phases: list[np.ndarray], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        Graph("mine", phases)


def test_rounds_may_be_connected_only_together() -> None:
    first = metropolis(4, [(0, 1), (2, 3)])
    second = metropolis(4, [(1, 2), (3, 0)])
    graph = Graph("in turn", [first, second])
    assert graph.varies
    assert graph.edges == ((0, 1), (0, 3), (1, 2), (2, 3))
    assert graph.degree == 1
    assert graph.shrinkage == 0
    assert graph.rounds_to(1e-3) == 2
    assert graph.diffusion_rate is None
    assert repr(graph) == "<in turn: 4 ranks, 4 edges, 2 rounds>"
    np.testing.assert_allclose(graph.mixed, 0.25, rtol=0, atol=1e-15)
    for alone in (first, second):
        with pytest.raises(ValueError, match="not connected"):
            Graph("alone", [alone])


def test_who_keeps_nothing_is_counted_right_and_may_never_settle() -> None:
    swap = Graph("swap", [np.array([[0.0, 1], [1, 0]])])
    assert repr(swap) == "<swap: 2 ranks, 1 edge>"
    assert swap.degree == 1
    assert swap.shrinkage == 1
    assert swap.spectral_gap == 0
    assert swap.rounds_to(1e-3) == inf
    assert swap.diffusion_rate == 0.5, "and both have the mean"
    ring = np.roll(np.eye(6), 1, 0) / 2 + np.roll(np.eye(6), -1, 0) / 2
    assert Graph("even ring without own shares", [ring]).rounds_to(1e-3) == inf


def test_weights_of_columns_alone_are_not_doubly_stochastic() -> None:
    graph = Graph("mine", [np.array([[0.5, 1], [0.5, 0]])])
    assert not graph.doubly_stochastic
    assert not graph.symmetric
    assert graph.diffusion_rate is None
    assert graph.edges == ((0, 1), (1, 0))
    assert graph.spectral_gap == pytest.approx(0.5)


def test_an_edge_that_one_end_alone_knows_is_not_symmetric() -> None:
    tiny = 1e-12  # below what sums are checked to
    weights = np.array([[0.5, 0.5, tiny], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    graph = Graph("mine", [weights])
    assert not graph.symmetric
    assert (2, 0) in graph.edges


def test_a_graph_stays_what_was_checked() -> None:
    mine = HALF.copy()
    graph = Graph("mine", [mine])
    mine[0, 0] = 7
    assert graph.weight(0, 0) == 0.5
    with pytest.raises(ValueError, match="read-only"):
        graph.phases[0][0, 0] = 7


def test_conversations_are_the_higher_ranks_minus_the_lower_ranks() -> None:
    graph = Graph("line", [metropolis(3, [(0, 1), (1, 2)])])
    assert [peers.topic for peers in graph.edges_of(1)] == ["0-1", "1-2"]
    assert [peers.weights for peers in graph.edges_of(1)] == [((0, -1.0), (1, 1.0)), ((1, -1.0), (2, 1.0))]
    assert graph.edges_of(0) == graph.edges_of(1)[:1]


def test_metropolis_weighs_an_edge_by_its_busier_end() -> None:
    weights = metropolis(4, [(0, 1), (0, 2), (0, 3), (2, 3)])
    expected = [
        [1 / 4, 1 / 4, 1 / 4, 1 / 4],
        [1 / 4, 3 / 4, 0, 0],
        [1 / 4, 0, 5 / 12, 1 / 3],
        [1 / 4, 0, 1 / 3, 5 / 12],
    ]
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(metropolis(4, [(1, 0), (0, 1), (2, 0), (0, 3), (3, 2)]), weights)


def test_who_hears_of_the_first() -> None:
    hears = np.zeros((4, 4), bool)
    hears[1, 0] = hears[2, 1] = hears[0, 3] = True
    assert reached(hears).tolist() == [True, True, True, False]
    assert reached(hears.T).tolist() == [True, False, False, True]
