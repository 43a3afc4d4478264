import numpy as np
import pytest

from thinwire import Complete, Edges, Hypercube, Ring, Star, Torus
from thinwire.extend import Topology


def test_a_ring_of_8_has_the_known_figures() -> None:
    graph = Ring().of(8)
    assert graph.spectral_gap == pytest.approx(0.19526, abs=5e-6)
    assert graph.diffusion_rate == pytest.approx(1.3084, abs=5e-5)
    assert graph.degree == 2
    assert len(graph.edges) == 8
    assert graph.phases[0][0].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 0, 0, 0, 1 / 3])


@pytest.mark.parametrize("size", [3, 5, 8, 13, 32])
def test_the_gap_of_a_ring_is_that_of_the_slowest_wave(size: int) -> None:
    graph = Ring().of(size)
    assert graph.spectral_gap == pytest.approx(2 / 3 * (1 - np.cos(2 * np.pi / size)), abs=1e-12)


@pytest.mark.parametrize(
    ("size", "sides"), [(1, (1, 1)), (4, (2, 2)), (7, (1, 7)), (8, (2, 4)), (12, (3, 4)), (16, (4, 4)), (30, (5, 6))]
)
def test_a_torus_is_as_square_as_possible(size: int, sides: tuple[int, int]) -> None:
    assert Torus().sides(size) == sides
    name = Torus().of(size).name
    assert name == ("torus, which is a ring here" if sides[0] == 1 else f"torus of {sides[0]} x {sides[1]}")


def test_a_torus_weighs_neighbors_and_itself_by_a_fifth() -> None:
    graph = Torus().of(12)  # 3 rows of 4
    assert dict(graph.row(0).weights) == pytest.approx({0: 0.2, 1: 0.2, 3: 0.2, 4: 0.2, 8: 0.2})
    assert dict(graph.row(6).weights) == pytest.approx({6: 0.2, 5: 0.2, 7: 0.2, 2: 0.2, 10: 0.2})
    assert graph.degree == 4


def test_weights_of_two_paths_to_a_rank_add_up() -> None:
    graph = Torus().of(8)  # 2 rows of 4
    assert dict(graph.row(0).weights) == pytest.approx({0: 0.2, 1: 0.2, 3: 0.2, 4: 0.4})
    assert graph.degree == 3
    assert dict(Torus().of(4).row(0).weights) == pytest.approx({0: 0.2, 1: 0.4, 2: 0.4})


@pytest.mark.parametrize("size", [2, 3, 5, 7, 13])
def test_a_torus_of_a_prime_number_of_ranks_is_a_ring(size: int) -> None:
    np.testing.assert_array_equal(Torus().of(size).phases[0], Ring().of(size).phases[0])


def test_a_star_has_its_hub_at_rank_0() -> None:
    graph = Star().of(5)
    assert graph.edges == ((0, 1), (0, 2), (0, 3), (0, 4))
    assert graph.degree == 4
    assert dict(graph.row(0).weights) == pytest.approx(dict.fromkeys(range(5), 0.2))
    assert dict(graph.row(3).weights) == pytest.approx({0: 0.2, 3: 0.8})
    assert graph.spectral_gap == pytest.approx(0.2)


@pytest.mark.parametrize("size", [2, 3, 8, 13])
def test_a_complete_graph_has_the_mean_in_one_round(size: int) -> None:
    graph = Complete().of(size)
    np.testing.assert_array_equal(graph.phases[0], np.full((size, size), 1 / size))
    assert (graph.spectral_gap, graph.rounds_to(1e-3)) == (1, 1)
    assert len(graph.edges) == size * (size - 1) // 2


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5])
def test_a_hypercube_joins_numbers_that_differ_in_one_bit(bits: int) -> None:
    size = 2**bits
    graph = Hypercube().of(size)
    assert graph.edges == tuple((i, j) for i in range(size) for j in range(i, size) if (i ^ j).bit_count() == 1)
    assert graph.degree == bits
    assert graph.spectral_gap == pytest.approx(min(2 / (1 + bits), 1) if bits > 1 else 1)
    np.testing.assert_allclose(graph.phases[0][graph.phases[0] != 0], 1 / (1 + bits))


@pytest.mark.parametrize("size", [3, 6, 7, 12])
def test_a_hypercube_of_another_number_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match=rf"^a hypercube has 2, 4, 8, ... ranks, not {size}$"):
        Hypercube().of(size)


def test_survivors_of_a_hypercube_form_a_part_of_one() -> None:
    assert Hypercube().for_survivors([1, 3, 5, 7], 8) == Hypercube()
    remaining = Hypercube().for_survivors([0, 1, 2, 3, 4, 6], 8)
    assert remaining == Edges(((0, 1), (0, 2), (0, 4), (1, 3), (1, 5), (2, 3), (4, 5)))
    assert remaining.of(6).symmetric


@pytest.mark.parametrize("kind", [Ring(), Torus(), Star(), Complete()], ids=repr)
def test_other_topologies_keep_their_kind_for_survivors(kind: Topology) -> None:
    assert kind.for_survivors([0, 2, 5], 6) is kind
