"""Gossip: D-PSGD, CHOCO-SGD and DeepSqueeze against their papers' update rules."""

from typing import Any

import pytest
import torch
from torch import Tensor

from thinwire import (
    Average,
    Choose,
    Difference,
    Edges,
    ErrorFeedback,
    Exponential,
    FittedFloat,
    Gossip,
    Identity,
    PowerIteration,
    PowerSGD,
    Quantize,
    Ring,
    Sharded,
    Sign,
    Star,
    TopK,
    Torus,
    When,
)
from thinwire.extend import Replica

from ..reference_run import ReferenceRun


def crowd(ranks: int, *shape: int, identical: bool = False) -> list[Replica]:
    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(ranks)]
    return [Replica.of({"w": xs[0].clone() if identical else x}, "dense", r, ranks) for r, x in enumerate(xs)]


def tensors(ranks: list[Replica]) -> Tensor:
    return torch.stack([replica.parameters["w"] for replica in ranks])


@pytest.mark.parametrize("topology", [Ring(), Torus(), Star(), Exponential()], ids=repr)
@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_an_uncompressed_step_is_a_product_with_the_mixing_matrix(topology: Any, rate: float) -> None:
    replicas = crowd(6, 5)
    graph = topology.of(6)
    reference = ReferenceRun(Gossip(Identity(), topology, rate=rate), replicas)
    x = tensors(replicas).clone()
    for k in range(4):
        weights = torch.from_numpy(graph.phases[k % len(graph.phases)].copy())
        reference.before_update()
        x = x + rate * (weights @ x - x)
        torch.testing.assert_close(tensors(replicas), x)
        for replica in replicas:
            replica.parameters["w"].sub_(0.1 * replica.rank)
        x = x - 0.1 * torch.arange(6.0, dtype=torch.float64)[:, None]
        reference.after_update()
        torch.testing.assert_close(tensors(replicas), x)


@pytest.mark.parametrize("codec", [TopK(0.3), Sign(), Quantize(4)], ids=repr)
def test_choco_follows_the_papers_update_rule(codec: Any) -> None:
    replicas, rate = crowd(5, 20, identical=True), 0.3
    weights = torch.from_numpy(Ring().of(5).phases[0].copy())
    reference = ReferenceRun(Gossip(Difference(codec), rate=rate), replicas)
    x, hat = (
        tensors(replicas).clone(),
        tensors(replicas).clone(),
    )  # replicas start identical, with exact copies of each other
    generator = torch.Generator().manual_seed(3)
    for step in range(6):
        reference.before_update()
        update = torch.randn(5, 20, generator=generator, dtype=torch.float64)
        for replica, mine in zip(replicas, update, strict=True):
            replica.parameters["w"].sub_(mine)
        reference.after_update()
        x = x - update
        for rank in range(5):
            # These codecs ignore the seed.
            (sent,) = codec.decode(codec.encode((x[rank] - hat[rank],), step), step)
            hat[rank] += sent
        x = x + rate * (weights @ hat - hat)
        torch.testing.assert_close(tensors(replicas), x, rtol=1e-6, atol=1e-6)


def test_deep_squeeze_adds_the_residual_to_the_next_message() -> None:
    replicas, rate, codec = crowd(4, 12), 0.2, TopK(0.25)
    weights = torch.from_numpy(Ring().of(4).phases[0].copy())
    reference = ReferenceRun(Gossip(ErrorFeedback(codec), rate=rate), replicas)
    x, residual = tensors(replicas).clone(), torch.zeros(4, 12, dtype=torch.float64)
    for _ in range(5):
        reference.before_update()
        reference.after_update()
        total = x + residual
        sent = torch.stack([codec.decode(codec.encode((row,), 0), 0)[0] for row in total])
        residual = total - sent
        x = x + rate * (weights @ sent - sent)
        torch.testing.assert_close(tensors(replicas), x)


def test_gossip_is_lossless_only_without_compression() -> None:
    assert Gossip(Identity()).lossless
    assert Gossip(Average()).lossless
    assert not Gossip(Quantize(8)).lossless


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"reducer": 3}, "a codec or a reducer is needed here, not 3"),
        ({"reducer": ErrorFeedback(PowerSGD(2))}, r"cannot take PowerSGD\(2\): it needs every rank to receive"),
        ({"reducer": Choose(When(PowerIteration(1)))}, r"cannot take PowerIteration\(1\)"),
        ({"reducer": FittedFloat()}, r"cannot take FittedFloat\(\)"),
        ({"reducer": Sharded(Sign(), Sign())}, "cannot take Sharded"),
        ({"reducer": Identity(), "topology": "ring"}, "Gossip takes a topology"),
        ({"reducer": Identity(), "rate": 0}, "rate above 0 and up to 2, not 0"),
        ({"reducer": Identity(), "fuse_below": -1}, "Gossip fuses tensors below 0 elements or more"),
    ],
)
def test_an_invalid_setting_is_an_error(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Gossip(**settings)


def test_graphs_on_which_gossip_would_be_wrong_are_an_error() -> None:
    directed = Edges(((0, 1), (1, 2), (2, 0), (0, 2)), directed=True)
    with pytest.raises(ValueError, match=r"would not keep the mean of the replicas\. Push"):
        Gossip(Identity(), directed).graph(3)
    with pytest.raises(ValueError, match=r"neighbors in .* change"):
        Gossip(Difference(TopK(0.1)), Exponential()).graph(8)
    with pytest.raises(ValueError, match=r"neighbors in .* change"):
        Gossip(Choose(When(Difference(TopK(0.1)), min_dim=2)), Exponential()).graph(8)
