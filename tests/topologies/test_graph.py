"""Graphs: checks at construction, and derived figures."""

from math import inf

import numpy as np
import pytest

from thinwire.extend import Graph
from thinwire.topologies.graph import metropolis, reachable

HALF = np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("phases", "problem"),
    [
        ([], "mine: a graph needs weights for at least 1 rank and 1 round"),
        ([np.zeros((0, 0))], "mine: a graph needs weights for at least 1 rank and 1 round"),
        ([np.ones((2, 3))], r"mine: weights must be a square matrix with a row per rank, not \(2, 3\)"),
        ([np.ones(3)], r"mine: weights must be a square matrix with a row per rank, not \(3,\)"),
        ([np.float64(1)], r"mine: weights must be a square matrix with a row per rank, not \(\)"),
        ([HALF, np.eye(3)], r"mine: weights must be a square matrix with a row per rank, not \(3, 3\)"),
        ([[[1.5, 0], [-0.5, 1]]], "mine: rank 1 weighs rank 0 by -0.5, but weights must be 0 or more"),
        ([[[0.5, np.nan], [0.5, 0.5]]], "mine: rank 0 weighs rank 1 by nan, but weights must be 0 or more"),
        ([[[0.5, 0.5], [np.inf, 0.5]]], "mine: rank 1 weighs rank 0 by inf, but weights must be 0 or more"),
        (
            [[[0.5, 0.5], [0.5, 0.4]]],
            r"mine: the weights of rank 1's messages \(column 1\) sum to 0.9, but every column",
        ),
        ([[[0.5, 0.5], [0.5 + 1e-8, 0.5]]], r"mine: the weights of rank 0's messages \(column 0\) sum to 1.00000001"),
        ([HALF, [[0.5, 0.5], [0.6, 0.5]]], r"mine: the weights of rank 0's messages \(column 0\) sum to 1.1"),
        ([np.eye(2)], "mine: the graph is not connected; nothing from rank 0 ever reaches rank 1"),
        ([[[0.5, 0], [0.5, 1]]], "mine: the graph is not connected; nothing from rank 1 ever reaches rank 0"),
        ([[[1, 0.5], [0, 0.5]]], "mine: the graph is not connected; nothing from rank 0 ever reaches rank 1"),
    ],
)
def test_invalid_weights_are_an_error_that_shows_them(phases: list[np.ndarray], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        Graph("mine", phases)


def test_a_cycle_may_be_connected_although_no_round_is() -> None:
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


def test_graphs_without_self_weights_may_never_converge() -> None:
    swap = Graph("swap", [np.array([[0.0, 1], [1, 0]])])
    assert repr(swap) == "<swap: 2 ranks, 1 edge>"
    assert swap.degree == 1
    assert swap.shrinkage == 1
    assert swap.spectral_gap == 0
    assert swap.rounds_to(1e-3) == inf
    assert swap.diffusion_rate == 0.5, "this rate gives both the mean"
    ring = np.roll(np.eye(6), 1, 0) / 2 + np.roll(np.eye(6), -1, 0) / 2
    assert Graph("even ring without self weights", [ring]).rounds_to(1e-3) == inf


def test_weights_with_unit_columns_only_are_not_doubly_stochastic() -> None:
    graph = Graph("mine", [np.array([[0.5, 1], [0.5, 0]])])
    assert not graph.doubly_stochastic
    assert not graph.symmetric
    assert graph.diffusion_rate is None
    assert graph.edges == ((0, 1), (1, 0))
    assert graph.spectral_gap == pytest.approx(0.5)


def test_an_edge_in_one_direction_is_not_symmetric_however_small() -> None:
    tiny = 1e-12  # below the tolerance of sums
    weights = np.array([[0.5, 0.5, tiny], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    graph = Graph("mine", [weights])
    assert not graph.symmetric
    assert (2, 0) in graph.edges


def test_weights_of_a_graph_cannot_be_changed() -> None:
    mine = HALF.copy()
    graph = Graph("mine", [mine])
    mine[0, 0] = 7
    assert graph.weight(0, 0) == 0.5
    with pytest.raises(ValueError, match="read-only"):
        graph.phases[0][0, 0] = 7


def test_edges_of_a_rank_are_differences_of_the_higher_and_the_lower_rank() -> None:
    graph = Graph("line", [metropolis(3, [(0, 1), (1, 2)])])
    assert [peers.topic for peers in graph.edges_of(1)] == ["0-1", "1-2"]
    assert [peers.weights for peers in graph.edges_of(1)] == [((0, -1.0), (1, 1.0)), ((1, -1.0), (2, 1.0))]
    assert graph.edges_of(0) == graph.edges_of(1)[:1]


def test_metropolis_weights_follow_the_larger_degree() -> None:
    weights = metropolis(4, [(0, 1), (0, 2), (0, 3), (2, 3)])
    expected = [
        [1 / 4, 1 / 4, 1 / 4, 1 / 4],
        [1 / 4, 3 / 4, 0, 0],
        [1 / 4, 0, 5 / 12, 1 / 3],
        [1 / 4, 0, 1 / 3, 5 / 12],
    ]
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(metropolis(4, [(1, 0), (0, 1), (2, 0), (0, 3), (3, 2)]), weights)


def test_reachable_follows_edges_from_rank_0() -> None:
    receives = np.zeros((4, 4), bool)
    receives[1, 0] = receives[2, 1] = receives[0, 3] = True
    assert reachable(receives).tolist() == [True, True, True, False]
    assert reachable(receives.T).tolist() == [True, False, False, True]
