"""Properties of every topology, at small, prime and power-of-two world sizes."""

from itertools import combinations, product

import numpy as np
import pytest

from thinwire import Complete, Edges, ErdosRenyi, Exponential, Hypercube, RandomRegular, Ring, Star, Torus, Weights
from thinwire.extend import Graph, Topology

SYMMETRIC = [Ring(), Torus(), Star(), Complete(), Hypercube(), RandomRegular(), RandomRegular(4), ErdosRenyi(0.6)]
KINDS = [*SYMMETRIC, Exponential(), Exponential(2)]
SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 31, 32]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)


def possible(kind: Topology, size: int) -> bool:
    """Whether the topology has a graph of this size; sizes without one are checked to be an error below."""
    if isinstance(kind, Hypercube):
        return size & (size - 1) == 0
    return not (isinstance(kind, RandomRegular) and kind.degree < size and size * kind.degree % 2)


def check(graph: Graph, size: int) -> None:
    """Checks that columns sum to 1, that every rank reaches every other, and the range of figures."""
    assert graph.size == size
    for phase in graph.phases:
        assert phase.shape == (size, size)
        assert (phase >= 0).all()
        np.testing.assert_allclose(phase.sum(0), 1, rtol=0, atol=1e-12)
    assert (np.linalg.matrix_power(graph.mixed, 2 * size) > 0).all()
    assert 0 <= graph.shrinkage < 1
    assert graph.spectral_gap == 1 - graph.shrinkage
    assert graph.rounds_to(1e-3) > 0


def all_of(kind: Topology) -> list[Graph]:
    """The graphs of every possible size."""
    sizes = [size for size in SIZES if possible(kind, size)]
    graphs = [kind.of(size) for size in sizes]
    assert [graph.size for graph in graphs] == sizes
    return graphs


@every_kind
def test_every_kind_is_connected_and_keeps_the_mean(kind: Topology) -> None:
    for graph in all_of(kind):
        check(graph, graph.size)
        assert graph.doubly_stochastic, graph.size
        for phase in graph.phases:
            np.testing.assert_allclose(phase.sum(1), 1, rtol=0, atol=1e-12)
            assert (np.diag(phase) > 0).all(), "every rank has a self weight"
        assert graph.degree <= max(0, graph.size - 1)


@every_kind
def test_an_impossible_size_is_an_error_that_shows_it(kind: Topology) -> None:
    for size in SIZES:
        if not possible(kind, size):
            with pytest.raises(ValueError, match=f"{size}"):
                kind.of(size)


@pytest.mark.parametrize("kind", SYMMETRIC, ids=repr)
def test_symmetric_graphs_weigh_edges_equally_at_both_ends(kind: Topology) -> None:
    for graph in (graph for graph in all_of(kind) if graph.size > 1):
        assert graph.symmetric, graph.size
        assert not graph.varies
        assert all(low < high for low, high in graph.edges)
        assert len(set(graph.edges)) == len(graph.edges)
        rate = graph.diffusion_rate
        assert rate is not None
        # At the best rate, the slowest difference shrinks as fast as the one that overshoots most.
        eigenvalues = np.sort(np.linalg.eigvalsh(np.eye(graph.size) - rate * (np.eye(graph.size) - graph.phases[0])))
        assert eigenvalues[-2] == pytest.approx(-eigenvalues[0], abs=1e-12), graph.size


@every_kind
def test_weights_of_a_rank_are_its_row_and_receivers_its_column(kind: Topology) -> None:
    for graph, size in ((graph, graph.size) for graph in all_of(kind)):
        for k, rank in product(range(len(graph.phases) + 1), range(size)):
            phase = graph.phases[k % len(graph.phases)]
            row, others = graph.row(rank, k), graph.others(rank, k)
            assert dict(row.weights) == {j: phase[rank, j] for j in range(size) if phase[rank, j]}
            assert dict(others.weights) == {j: w for j, w in row.weights if j != rank}
            assert row.receivers == others.receivers
            assert row.receivers == tuple(i for i in range(size) if phase[i, rank] and i != rank)
            assert graph.weight(rank, 0, k) == phase[rank, 0]


@every_kind
def test_a_single_rank_has_no_edges(kind: Topology) -> None:
    graph = kind.of(1)
    assert graph.edges == ()
    assert (graph.degree, graph.shrinkage, graph.rounds_to(1e-3), graph.diffusion_rate) == (0, 0, 1, None)
    assert graph.phases[0].tolist() == [[1.0]]


@every_kind
def test_two_ranks_average_in_one_round(kind: Topology) -> None:
    graph = kind.of(2)
    assert graph.edges == ((0, 1),)
    if not isinstance(kind, ErdosRenyi | RandomRegular | Torus):
        assert graph.phases[0].tolist() == [[0.5, 0.5], [0.5, 0.5]]


@every_kind
@pytest.mark.parametrize("size", [0, -3, 2.5, "8", None])
def test_an_invalid_world_size_is_an_error_that_shows_it(kind: Topology, size: object) -> None:
    with pytest.raises(ValueError, match=r"^an? .* has 1 rank or more, not ") as caught:
        kind.of(size)  # type: ignore[arg-type]
    assert str(caught.value).endswith(repr(size))


@pytest.mark.parametrize(
    "kind",
    [*KINDS, Edges(tuple(combinations(range(8), 2))), Weights(((1 / 8,) * 8,) * 8)],
    ids=lambda k: type(k).__name__,
)
@pytest.mark.parametrize("failed", [(0,), (7,), (3, 4), (0, 2, 4, 6), (1, 2, 3, 5, 6), (0, 1, 2, 3, 4, 5, 6)])
def test_survivors_have_a_connected_graph(kind: Topology, failed: tuple[int, ...]) -> None:
    survivors = [rank for rank in range(8) if rank not in failed]
    check(kind.for_survivors(survivors, 8).of(len(survivors)), len(survivors))


@every_kind
def test_survivors_can_lose_further_ranks(kind: Topology) -> None:
    for size in range(13, 1, -1):
        kind = kind.for_survivors([rank for rank in range(size) if rank != size // 2], size)
        if not isinstance(kind, Edges):  # a hypercube: after a second failure, its edges need not be connected
            check(kind.of(size - 1), size - 1)
