"""PowerGossip, as its authors' algorithm has it."""

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
from ..rehearsal import Rehearsal


def crowd(ranks: int, *shape: int) -> list[Replica]:
    """Matrices from a bell curve, one for each rank."""
    draw = torch.Generator().manual_seed(0)
    xs = [torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(ranks)]
    return [Replica.of({"w": x}, "dense", rank, ranks) for rank, x in enumerate(xs)]


def tensors(ranks: list[Replica]) -> Tensor:
    return torch.stack([replica.parameters["w"] for replica in ranks])


def mixed(between: Rehearsal, steps: int) -> None:
    for _ in range(steps):
        between.before_update()
        between.after_update()


def test_consensus_on_a_ring_of_eight_is_as_fast_as_the_authors_algorithm() -> None:
    # The figures of a re-simulation of theirs: 1.9e-3 after 1,000 iterations and 3.6e-7 after 3,000, at a rate of 1.
    ranks = crowd(8, 100, 100)
    mean, start = tensors(ranks).mean(0), (tensors(ranks) - tensors(ranks).mean(0)).square().sum()
    between = Rehearsal(EdgeGossip(PowerIteration(1)), ranks)
    errors = []
    for steps in (1001, 2000):  # the first step is silent
        mixed(between, steps)
        errors.append(float((tensors(ranks) - mean).square().sum() / start))
    assert 1e-3 < errors[0] < 4e-3
    assert 1e-7 < errors[1] < 1.2e-6
    assert (tensors(ranks).mean(0) - mean).abs().max() < 1e-13, "the mean stays, to round-off"


def test_a_step_is_the_papers_to_the_letter() -> None:
    """Two ranks, two iterations a step, written out: factors by turns, each iteration applied before the next."""
    strategy = EdgeGossip(PowerIteration(2, iterations=2, least_ratio=1.0), rate=0.8)
    ranks = crowd(2, 7, 5)
    between = Rehearsal(strategy, ranks)
    low, high = (replica.parameters["w"].clone() for replica in ranks)
    state = between.states[0].edges["0-1"]["w"]
    left, right = state.left.clone(), state.right.clone()
    mixed(between, 1)
    assert same_bits(ranks[0].parameters["w"], low), "replicas begin alike, so the first step has nothing to say"
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
        mixed(between, 1)
        torch.testing.assert_close(ranks[0].parameters["w"], low, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(ranks[1].parameters["w"], high, rtol=1e-9, atol=1e-9)


def test_gradients_and_gossip_are_both_of_the_same_parameters() -> None:
    # Gossip is made before the update: what is said does not know of the step that follows.
    ranks = crowd(2, 6, 6)
    between = Rehearsal(EdgeGossip(Identity(), Ring()), ranks)
    mixed(between, 1)
    low, high = (replica.parameters["w"].clone() for replica in ranks)
    between.before_update()
    for replica in ranks:
        replica.parameters["w"].sub_(replica.rank + 1.0)
    between.after_update()
    torch.testing.assert_close(ranks[0].parameters["w"], (low + high) / 2 - 1)
    torch.testing.assert_close(ranks[1].parameters["w"], (low + high) / 2 - 2)


def test_both_ends_of_every_edge_remember_the_same() -> None:
    ranks = crowd(5, 9, 8)
    between = Rehearsal(EdgeGossip(PowerIteration(2), Star()), ranks)
    mixed(between, 6)
    edges: dict[str, Any] = {}
    for state in between.states:
        for topic, units in state.edges.items():
            assert same_bits(tuple(units["w"]), tuple(edges.setdefault(topic, units)["w"]))
    assert len(edges) == 4
    first, second, *_ = (units["w"].left for units in edges.values())
    assert not torch.equal(first, second), "each edge has factors of its own"


def test_vectors_are_said_as_they_are() -> None:
    ranks = [replica_of(nn.BatchNorm1d(12), rank=rank, size=2) for rank in range(2)]
    for replica in ranks:
        for p in replica.parameters.values():
            p.data.fill_(float(replica.rank))
    between = Rehearsal(EdgeGossip(PowerIteration(1)), ranks)
    mixed(between, 2)
    assert all(bool((p == 0.5).all()) for replica in ranks for p in replica.parameters.values())


# What the authors' ResNet-20 has: the shortcuts that change shapes are convolutions with a norm. Beside D-PSGD's bytes.
@pytest.mark.parametrize(("iterations", "times_less"), [(1, 56), (2, 34)])
def test_bytes_on_a_ring_of_eight_are_the_papers(iterations: int, times_less: int) -> None:
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
    between = Rehearsal(EdgeGossip(PowerIteration(1, iterations=iterations)), ranks)
    mixed(between, 3)  # one silent, one from each side
    matrices = [p for p in replica.parameters.values() if p.ndim > 1]
    thin = sum(p.shape[0] + p.shape[1:].numel() for p in matrices)
    vectors = sum(p.numel() for p in replica.parameters.values() if p.ndim < 2)
    a_step = 2 * 4 * (iterations * thin / 2 + vectors)
    assert between.meters[0].link_bytes == 2 * a_step
    whole = 2 * sum(p.nbytes for p in replica.parameters.values())
    assert whole / a_step == pytest.approx(times_less, rel=0.02)
    assert between.meters[0].rounds == 2 * iterations, "one message a neighbor and iteration, for the whole model"


@pytest.mark.parametrize(
    ("reducer", "topology", "problem"),
    [
        (TopK(0.1), Ring(), r"PowerIteration\(...\) or a linear codec, not TopK"),
        (ErrorFeedback(PowerSGD(1)), Ring(), "not ErrorFeedback"),
        (PowerIteration(1), "ring", r"a topology, such as Ring\(\), not 'ring'"),
        (Quantize(8), Ring(), "not Quantize"),
    ],
)
def test_what_does_not_go_together_is_refused(reducer: Any, topology: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        EdgeGossip(reducer, topology)


def test_an_edge_is_a_conversation() -> None:
    with pytest.raises(ValueError, match="one-way or changing edges"):
        EdgeGossip(RandomK(0.5), Exponential()).graph(8)


@pytest.mark.parametrize("rate", [0, -1, 2.5, "fast"])
def test_a_rate_is_above_zero_and_up_to_two(rate: Any) -> None:
    with pytest.raises(ValueError, match="rate above 0 and up to 2"):
        EdgeGossip(PowerIteration(1), rate=rate)
