"""D-PSGD, CHOCO-SGD and DeepSqueeze: one rule, said in different ways."""

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

from ..rehearsal import Rehearsal


def crowd(ranks: int, *shape: int, alike: bool = False) -> list[Replica]:
    draw = torch.Generator().manual_seed(0)
    xs = [torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(ranks)]
    return [Replica.of({"w": xs[0].clone() if alike else x}, "dense", r, ranks) for r, x in enumerate(xs)]


def tensors(ranks: list[Replica]) -> Tensor:
    return torch.stack([replica.parameters["w"] for replica in ranks])


@pytest.mark.parametrize("topology", [Ring(), Torus(), Star(), Exponential()], ids=repr)
@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_a_step_without_loss_is_a_product_with_the_weights(topology: Any, rate: float) -> None:
    replicas = crowd(6, 5)
    graph = topology.of(6)
    between = Rehearsal(Gossip(Identity(), topology, rate=rate), replicas)
    x = tensors(replicas).clone()
    for k in range(4):
        weights = torch.from_numpy(graph.phases[k % len(graph.phases)].copy())
        between.before_update()
        x = x + rate * (weights @ x - x)
        torch.testing.assert_close(tensors(replicas), x)
        for replica in replicas:
            replica.parameters["w"].sub_(0.1 * replica.rank)
        x = x - 0.1 * torch.arange(6.0, dtype=torch.float64)[:, None]
        between.after_update()
        torch.testing.assert_close(tensors(replicas), x)


@pytest.mark.parametrize("codec", [TopK(0.3), Sign(), Quantize(4)], ids=repr)
def test_choco_is_the_papers_to_the_letter(codec: Any) -> None:
    replicas, rate = crowd(5, 20, alike=True), 0.3
    weights = torch.from_numpy(Ring().of(5).phases[0].copy())
    between = Rehearsal(Gossip(Difference(codec), rate=rate), replicas)
    x, hat = tensors(replicas).clone(), tensors(replicas).clone()  # all begin alike, and know it
    draw = torch.Generator().manual_seed(3)
    for step in range(6):
        between.before_update()
        update = torch.randn(5, 20, generator=draw, dtype=torch.float64)
        for replica, mine in zip(replicas, update, strict=True):
            replica.parameters["w"].sub_(mine)
        between.after_update()
        x = x - update
        for rank in range(5):
            # Seeds do not matter to these codecs.
            (said,) = codec.decode(codec.encode((x[rank] - hat[rank],), step), step)
            hat[rank] += said
        x = x + rate * (weights @ hat - hat)
        torch.testing.assert_close(tensors(replicas), x, rtol=1e-6, atol=1e-6)


def test_deep_squeeze_says_what_it_left_unsaid_later() -> None:
    replicas, rate, codec = crowd(4, 12), 0.2, TopK(0.25)
    weights = torch.from_numpy(Ring().of(4).phases[0].copy())
    between = Rehearsal(Gossip(ErrorFeedback(codec), rate=rate), replicas)
    x, left = tensors(replicas).clone(), torch.zeros(4, 12, dtype=torch.float64)
    for _ in range(5):
        between.before_update()
        between.after_update()
        total = x + left
        said = torch.stack([codec.decode(codec.encode((row,), 0), 0)[0] for row in total])
        left = total - said
        x = x + rate * (weights @ said - said)
        torch.testing.assert_close(tensors(replicas), x)


def test_a_codec_stands_for_saying_parameters_through_it() -> None:
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
def test_what_cannot_be_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Gossip(**settings)


def test_graphs_in_which_gossip_would_drift_are_refused() -> None:
    ways = Edges(((0, 1), (1, 2), (2, 0), (0, 2)), directed=True)
    with pytest.raises(ValueError, match=r"would not keep the mean of the replicas\. Push"):
        Gossip(Identity(), ways).graph(3)
    with pytest.raises(ValueError, match=r"neighbors in .* change"):
        Gossip(Difference(TopK(0.1)), Exponential()).graph(8)
    with pytest.raises(ValueError, match=r"neighbors in .* change"):
        Gossip(Choose(When(Difference(TopK(0.1)), min_dim=2)), Exponential()).graph(8)
