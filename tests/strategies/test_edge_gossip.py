"""PowerGossip against its authors' algorithm."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from thinwire import (
    EdgeGossip,
    ErrorFeedback,
    Exponential,
    Identity,
    PowerIteration,
    PowerSGD,
    Quantize,
    RandomK,
    Ring,
    Star,
    TopK,
)
from thinwire.extend import Replica
from thinwire.lab.tasks import models
from thinwire.reducers.low_rank import orthonormal
from thinwire.simulate import replica_of

from ..helpers import same_bits
from ..reference_run import ReferenceRun


def crowd(ranks: int, *shape: int) -> list[Replica]:
    """One normally distributed matrix for each rank."""
    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(ranks)]
    return [Replica.of({"w": x}, "dense", rank, ranks) for rank, x in enumerate(xs)]


def tensors(ranks: list[Replica]) -> Tensor:
    return torch.stack([replica.parameters["w"] for replica in ranks])


def mixed(reference: ReferenceRun, steps: int) -> None:
    for _ in range(steps):
        reference.before_update()
        reference.after_update()


def test_consensus_on_a_ring_of_eight_is_as_fast_as_the_authors_algorithm() -> None:
    # A simulation of their algorithm gives 1.9e-3 after 1,000 iterations and 3.6e-7 after 3,000, at a rate of 1.
    ranks = crowd(8, 100, 100)
    mean, start = tensors(ranks).mean(0), (tensors(ranks) - tensors(ranks).mean(0)).square().sum()
    reference = ReferenceRun(EdgeGossip(PowerIteration(1)), ranks)
    errors = []
    for steps in (1001, 2000):  # the first step sends nothing
        mixed(reference, steps)
        errors.append(float((tensors(ranks) - mean).square().sum() / start))
    assert 1e-3 < errors[0] < 4e-3
    assert 1e-7 < errors[1] < 1.2e-6
    assert (tensors(ranks).mean(0) - mean).abs().max() < 1e-13, "the mean does not change, up to rounding"


def test_step_bytes_follows_the_papers_algorithm() -> None:
    """Two ranks, two iterations per step, written out: factors in turn, each iteration applied before the next."""
    strategy = EdgeGossip(PowerIteration(2, iterations=2, least_ratio=1.0), rate=0.8)
    ranks = crowd(2, 7, 5)
    reference = ReferenceRun(strategy, ranks)
    low, high = (replica.parameters["w"].clone() for replica in ranks)
    state = reference.states[0].edges["0-1"]["w"]
    left, right = state.left.clone(), state.right.clone()
    mixed(reference, 1)
    assert same_bits(ranks[0].parameters["w"], low), "replicas start identical, so the first step sends nothing"
    from_left = state.from_left
    for _ in range(3):
        for _ in range(2):
            basis = orthonormal(left if from_left else right)
            difference = high - low
            if from_left:
                right = basis @ difference
                found = basis.T @ right
            else:
                left = basis @ difference.T
                found = left.T @ basis
            low, high = low + 0.8 * 0.5 * found, high - 0.8 * 0.5 * found
            from_left = not from_left
        mixed(reference, 1)
        torch.testing.assert_close(ranks[0].parameters["w"], low, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(ranks[1].parameters["w"], high, rtol=1e-9, atol=1e-9)


def test_parameters_are_mixed_before_the_update() -> None:
    # The messages do not include the update that follows.
    ranks = crowd(2, 6, 6)
    reference = ReferenceRun(EdgeGossip(Identity(), Ring()), ranks)
    mixed(reference, 1)
    low, high = (replica.parameters["w"].clone() for replica in ranks)
    reference.before_update()
    for replica in ranks:
        replica.parameters["w"].sub_(replica.rank + 1.0)
    reference.after_update()
    torch.testing.assert_close(ranks[0].parameters["w"], (low + high) / 2 - 1)
    torch.testing.assert_close(ranks[1].parameters["w"], (low + high) / 2 - 2)


def test_both_ends_of_every_edge_have_the_same_state() -> None:
    ranks = crowd(5, 9, 8)
    reference = ReferenceRun(EdgeGossip(PowerIteration(2), Star()), ranks)
    mixed(reference, 6)
    edges: dict[str, Any] = {}
    for state in reference.states:
        for topic, units in state.edges.items():
            assert same_bits(tuple(units["w"]), tuple(edges.setdefault(topic, units)["w"]))
    assert len(edges) == 4
    first, second, *_ = (units["w"].left for units in edges.values())
    assert not torch.equal(first, second), "each edge has its own factors"


def test_vectors_are_sent_uncompressed() -> None:
    ranks = [replica_of(nn.BatchNorm1d(12), rank=rank, size=2) for rank in range(2)]
    for replica in ranks:
        for p in replica.parameters.values():
            p.data.fill_(float(replica.rank))
    reference = ReferenceRun(EdgeGossip(PowerIteration(1)), ranks)
    mixed(reference, 2)
    assert all(bool((p == 0.5).all()) for replica in ranks for p in replica.parameters.values())


# The authors' ResNet-20 has convolutions with a norm in shortcuts that change shapes. Ratios to D-PSGD's bytes.
@pytest.mark.parametrize(("iterations", "ratio"), [(1, 56), (2, 34)])
def test_bytes_on_a_ring_of_eight_are_the_papers(iterations: int, ratio: int) -> None:
    plain = models.named("resnet20").build()
    shortcuts = nn.ModuleList([nn.Conv2d(16, 32, 1, bias=False), nn.BatchNorm2d(32)])
    shortcuts.extend([nn.Conv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64)])
    model = nn.ModuleList([plain, shortcuts])
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(272_474, rel=0.002)
    replica = replica_of(model)
    ranks = [
        replica._replace(parameters={n: p.detach().clone() for n, p in replica.parameters.items()}, rank=r, size=8)
        for r in range(8)
    ]
    reference = ReferenceRun(EdgeGossip(PowerIteration(1, iterations=iterations)), ranks)
    mixed(reference, 3)  # one without messages, one from each side
    matrices = [p for p in replica.parameters.values() if p.ndim > 1]
    factor_entries = sum(p.shape[0] + p.shape[1:].numel() for p in matrices)
    vectors = sum(p.numel() for p in replica.parameters.values() if p.ndim < 2)
    step_bytes = 2 * 4 * (iterations * factor_entries / 2 + vectors)
    assert reference.meters[0].link_bytes == 2 * step_bytes
    dense_bytes = 2 * sum(p.nbytes for p in replica.parameters.values())
    assert dense_bytes / step_bytes == pytest.approx(ratio, rel=0.02)
    assert reference.meters[0].rounds == 2 * iterations, "one message per neighbor and iteration, for the whole model"


@pytest.mark.parametrize(
    ("reducer", "topology", "problem"),
    [
        (TopK(0.1), Ring(), r"PowerIteration\(...\) or a linear codec, not TopK"),
        (ErrorFeedback(PowerSGD(1)), Ring(), "not ErrorFeedback"),
        (PowerIteration(1), "ring", r"a topology, such as Ring\(\), not 'ring'"),
        (Quantize(8), Ring(), "not Quantize"),
    ],
)
def test_an_invalid_reducer_or_topology_is_an_error(reducer: Any, topology: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        EdgeGossip(reducer, topology)


def test_a_graph_with_changing_edges_is_an_error() -> None:
    with pytest.raises(ValueError, match="one-way or changing edges"):
        EdgeGossip(RandomK(0.5), Exponential()).graph(8)


@pytest.mark.parametrize("rate", [0, -1, 2.5, "fast"])
def test_a_rate_outside_of_0_to_2_is_an_error(rate: Any) -> None:
    with pytest.raises(ValueError, match="rate above 0 and up to 2"):
        EdgeGossip(PowerIteration(1), rate=rate)
