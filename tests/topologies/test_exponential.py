import numpy as np
import pytest

from thinwire import Exponential
from thinwire.extend import Graph

POWERS = [2, 4, 8, 16, 32, 64]


def product(phases: tuple[np.ndarray, ...]) -> np.ndarray:
    mixed = np.eye(len(phases[0]))
    for phase in phases:
        mixed = phase @ mixed
    return mixed


@pytest.mark.parametrize("size", POWERS)
def test_a_cycle_gives_the_exact_mean_for_powers_of_two(size: int) -> None:
    graph = Exponential().of(size)
    assert len(graph.phases) == size.bit_length() - 1
    np.testing.assert_array_equal(graph.mixed, np.full((size, size), 1 / size))
    assert graph.spectral_gap == 1
    assert graph.rounds_to(1e-3) == len(graph.phases)
    assert graph.degree == 1


@pytest.mark.parametrize("size", POWERS[1:])
def test_a_cycle_without_one_round_does_not_give_the_mean(size: int) -> None:
    # Hops of 2 ** (k mod floor(log2(n - 1))), as some descriptions have it, omit the last one.
    graph = Exponential().of(size)
    assert len(graph.phases) > np.floor(np.log2(size - 1))
    for cycle in (graph.phases[:-1], graph.phases[1:]):
        assert abs(product(cycle) - 1 / size).max() > 0.4 / size
    longer = (*graph.phases, graph.phases[0])
    np.testing.assert_array_equal(product(longer), np.full((size, size), 1 / size))


@pytest.mark.parametrize("size", POWERS)
def test_hops_modulo_another_number_do_not_give_the_mean(size: int) -> None:
    # As if hops were modulo n + 1, without the missing rank.
    hops = [1 << c for c in range(size.bit_length() - 1)]
    wrong = []
    for hop in hops:
        weights = np.eye(size + 1) / 2 + np.roll(np.eye(size + 1), hop, 0) / 2
        kept = weights[:size, :size]
        wrong.append(kept + np.diag(1 - kept.sum(0)))
    assert abs(product(tuple(wrong)) - 1 / size).max() > 0.4 / size


@pytest.mark.parametrize("size", [3, 5, 6, 7, 12, 13])
def test_other_numbers_of_ranks_converge_to_the_mean(size: int) -> None:
    graph = Exponential().of(size)
    assert len(graph.phases) == int(np.ceil(np.log2(size)))
    assert 0.3 < graph.spectral_gap < 1
    rounds = int(np.ceil(graph.rounds_to(1e-3) / len(graph.phases)))
    remaining = np.linalg.norm(np.linalg.matrix_power(graph.mixed, rounds) - 1 / size, 2)
    assert remaining <= 1e-3


def test_a_rank_sends_to_one_peer_per_round() -> None:
    graph = Exponential().of(8)
    assert [graph.row(3, k).receivers for k in range(4)] == [(4,), (5,), (7,), (4,)]
    assert [dict(graph.row(3, k).weights) for k in range(3)] == [{2: 0.5, 3: 0.5}, {1: 0.5, 3: 0.5}, {3: 0.5, 7: 0.5}]
    assert not graph.symmetric
    assert graph.diffusion_rate is None


def test_two_peers_are_at_the_current_hop_and_the_next() -> None:
    graph = Exponential(2).of(8)
    assert [graph.row(0, k).receivers for k in range(3)] == [(1, 2), (2, 4), (1, 4)]
    assert graph.degree == 2
    assert {weight for phase in graph.phases for weight in phase.ravel().tolist()} == {0, 1 / 3}


@pytest.mark.parametrize("size", [3, 4])
def test_equal_rounds_are_merged_into_one(size: int) -> None:
    graph: Graph = Exponential(2).of(size)
    assert len(graph.phases) == 1
    assert not graph.varies


@pytest.mark.parametrize("peers", [0, 3, -1, 1.0, 2.5, "1", None])
def test_other_numbers_of_peers_are_an_error(peers: object) -> None:
    with pytest.raises(ValueError, match=r"^Exponential sends to 1 or 2 peers per round, not ") as caught:
        Exponential(peers)  # type: ignore[arg-type]
    assert str(caught.value).endswith(repr(peers))
