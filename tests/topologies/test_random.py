from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from thinwire import ErdosRenyi, RandomRegular, parse
from thinwire.extend import Graph

SIZES = st.integers(1, 24)
FROZEN_REGULAR = ((0, 3), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (2, 3), (2, 5), (4, 5))
FROZEN_RANDOM = ((0, 1), (0, 5), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4))
SEEDS = st.integers(0, 2**70)


def check_sampled(graph: Graph, again: Graph, size: int) -> None:
    np.testing.assert_array_equal(graph.phases[0], again.phases[0])
    np.testing.assert_allclose(graph.phases[0].sum(0), 1, rtol=0, atol=1e-12)
    assert graph.size == size
    assert graph.symmetric
    assert graph.doubly_stochastic


@given(degree=st.integers(2, 6), seed=SEEDS, size=SIZES)
def test_every_rank_of_a_regular_graph_has_the_same_degree(degree: int, seed: int, size: int) -> None:
    kind = RandomRegular(degree, seed)
    assert parse(repr(kind)) == kind
    degree_here = min(degree, size - 1)
    assume(size * degree_here % 2 == 0)
    graph = kind.of(size)
    check_sampled(graph, parse(repr(kind)).of(size), size)
    assert (np.count_nonzero(graph.phases[0], 0) == degree_here + 1).all()
    np.testing.assert_allclose(graph.phases[0][graph.phases[0] != 0], 1 / (degree_here + 1))


@given(p=st.floats(0.3, 1.0), seed=SEEDS, size=SIZES)
def test_a_random_graph_has_metropolis_weights(p: float, seed: int, size: int) -> None:
    kind = ErdosRenyi(p, seed)
    assert parse(repr(kind)) == kind
    graph = kind.of(size)
    check_sampled(graph, parse(repr(kind)).of(size), size)
    degrees = np.count_nonzero(graph.phases[0], 0) - 1
    for i, j in graph.edges:
        assert graph.weight(i, j) == pytest.approx(1 / (1 + max(degrees[i], degrees[j])))


@given(p=st.floats(1e-300, 1.0), seed=SEEDS)
def test_any_probability_round_trips_through_the_notation(p: float, seed: int) -> None:
    assert parse(repr(ErdosRenyi(p, seed))) == ErdosRenyi(p, seed)


@pytest.mark.parametrize("kind", [RandomRegular, ErdosRenyi])
def test_every_seed_gives_another_graph(kind: type[RandomRegular] | type[ErdosRenyi]) -> None:
    sampled = [kind(seed=seed).of(16).edges for seed in range(20)]
    assert len(set(sampled)) == 20
    assert kind(seed=0).of(16).edges == sampled[0]


def test_the_graph_of_a_seed_is_frozen() -> None:
    # Every rank samples the graph on its own, so versions must agree.
    assert RandomRegular(3, seed=5).of(6).edges == FROZEN_REGULAR
    assert ErdosRenyi(0.5, seed=5).of(6).edges == FROZEN_RANDOM


def test_probability_one_is_the_complete_graph() -> None:
    np.testing.assert_allclose(ErdosRenyi(1).of(9).phases[0], 1 / 9)


def test_the_mean_number_of_edges_matches_the_probability() -> None:
    edges = [len(ErdosRenyi(0.5, seed).of(20).edges) for seed in range(50)]
    assert np.mean(edges) == pytest.approx(95, abs=4)


def test_too_few_edges_to_be_connected_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^ErdosRenyi\(0.001\) gave no connected graph of 12 ranks in 10,000 tries"):
        ErdosRenyi(0.001).of(12)


def test_an_odd_degree_of_an_odd_number_of_ranks_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"^there is no graph of 7 ranks with 3 edges each: one of the two numbers must be"
    ):
        RandomRegular(3).of(7)


def test_survivors_get_one_more_edge_where_parity_requires_it() -> None:
    assert RandomRegular(3).for_survivors(range(7), 8) == RandomRegular(4)
    assert RandomRegular(3).for_survivors(range(6), 8) == RandomRegular(3)
    assert RandomRegular(3).for_survivors(range(3), 8) == RandomRegular(3), "the graph is then complete"
    assert RandomRegular(4, seed=9).for_survivors(range(7), 8) == RandomRegular(4, seed=9)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: RandomRegular(1), "RandomRegular takes a degree of 2 or more, not 1"),
        (lambda: RandomRegular(2.5), "RandomRegular takes a degree of 2 or more, not 2.5"),
        (lambda: RandomRegular(seed=-1), "RandomRegular takes a seed of 0 or more, not -1"),
        (lambda: ErdosRenyi(0), "ErdosRenyi takes a probability above 0 and up to 1, not 0"),
        (lambda: ErdosRenyi(1.5), "ErdosRenyi takes a probability above 0 and up to 1, not 1.5"),
        (lambda: ErdosRenyi(float("nan")), "ErdosRenyi takes a probability above 0 and up to 1, not nan"),
        (lambda: ErdosRenyi(seed=0.5), "ErdosRenyi takes a seed of 0 or more, not 0.5"),
    ],
)
def test_invalid_arguments_are_an_error_that_shows_them(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole message is compared
        make()
    assert str(caught.value) == problem
