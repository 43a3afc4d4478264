"""Stochastic gradient push: consensus, conservation of mass with messages in flight, and overlap."""

from typing import Any

import pytest
import torch
from torch import Tensor

from thinwire import Cast, Complete, Edges, Exponential, Identity, PushSum, Quantize, Ring
from thinwire.extend import Codec, Replica, Topology

from ..helpers import same_bits
from ..reference_run import ReferenceRun

DIRECTED = Edges(((0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 3)), directed=True)


def crowd(ranks: int, *shape: int, dtype: torch.dtype = torch.float64) -> list[Replica]:
    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(ranks)]
    return [Replica.of({"w": x}, "dense", rank, ranks) for rank, x in enumerate(xs)]


def tensors(ranks: list[Replica]) -> Tensor:
    return torch.stack([replica.parameters["w"] for replica in ranks])


def step(reference: ReferenceRun, updates: list[Tensor] | None = None) -> None:
    reference.before_update()
    for replica, update in zip(reference.replicas, updates or [], strict=False):
        replica.parameters["w"].sub_(update)
    reference.after_update()


def mass(reference: ReferenceRun) -> tuple[float, Tensor]:
    """The sums of all ranks' weights and shares, without messages in flight."""
    weights = [state.weight for state in reference.states]
    shares = [w * replica.parameters["w"] for w, replica in zip(weights, reference.replicas, strict=True)]
    return sum(weights), torch.stack(shares).sum(0)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32])
def test_all_ranks_have_the_mean_after_one_cycle_of_the_exponential_graph(ranks: int) -> None:
    replicas = crowd(ranks, 5)
    mean = tensors(replicas).mean(0)
    reference = ReferenceRun(PushSum(), replicas)
    for phase in range(ranks.bit_length() - 1):
        assert (tensors(replicas) - mean).abs().max() > 1e-3, phase
        step(reference)
    torch.testing.assert_close(tensors(replicas), mean.expand(ranks, -1), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("topology", [Exponential(), Exponential(2), Ring(), Complete(), DIRECTED], ids=repr)
@pytest.mark.parametrize("overlap", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", [Identity(), Cast("float16"), Quantize(8)], ids=repr)
def test_mass_is_conserved_while_ranks_train(topology: Topology, overlap: int, codec: Codec) -> None:
    replicas = crowd(4, 6, 7)
    reference = ReferenceRun(PushSum(codec, topology, overlap=overlap), replicas)
    total = tensors(replicas).sum(0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(13):
        updates = [0.1 * torch.randn(6, 7, generator=generator, dtype=torch.float64) for _ in range(4)]
        step(reference, updates)
        total = total - sum(updates)
    reference.land()
    weight, share = mass(reference)
    assert weight == pytest.approx(4, rel=1e-12)
    torch.testing.assert_close(share, total, rtol=1e-10, atol=1e-10)
    found = reference.consensus()
    torch.testing.assert_close(found.means["w"], total / 4, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("overlap", [1, 2])
def test_messages_in_flight_reduce_the_senders_weight_and_scale_its_updates(overlap: int) -> None:
    replicas = crowd(2, 3)
    reference = ReferenceRun(PushSum(overlap=overlap), replicas)
    for _ in range(overlap):
        step(reference)
    assert [state.weight for state in reference.states] == [0.5, 0.5]
    before = tensors(replicas).clone()
    reference.before_update()
    for replica in replicas:
        replica.parameters["w"].sub_(1.0)  # the optimizer updates parameters, not shares
    after = before - 2.0  # the share moves by 1, and parameters are the share over its weight
    if overlap == 1:  # the message in flight lands, and the next is launched
        after = after * 0.5 + 0.5 * before.flip(0)
    reference.after_update()
    torch.testing.assert_close(tensors(replicas), after)


def test_push_sum_weights_correct_the_mean_on_a_directed_graph() -> None:
    # Rank 0 sends to all, the others to one. Without weights, ranks would converge to another value than the mean.
    replicas = crowd(4, 9)
    mean = tensors(replicas).mean(0)
    reference = ReferenceRun(PushSum(topology=DIRECTED), replicas)
    weights = set()
    for _ in range(80):
        step(reference)
        weights |= {round(state.weight, 6) for state in reference.states}
    torch.testing.assert_close(tensors(replicas), mean.expand(4, -1), rtol=1e-9, atol=1e-9)
    assert len(weights) > 10


def test_the_weight_is_exactly_1_on_a_regular_graph() -> None:
    reference = ReferenceRun(PushSum(), crowd(8, 4))
    for _ in range(20):
        step(reference)
        assert [state.weight for state in reference.states] == [1.0] * 8


def test_messages_are_in_flight_for_overlap_steps() -> None:
    reference = ReferenceRun(PushSum(overlap=3), crowd(4, 50))
    sent = []
    for _ in range(9):
        step(reference)
        sent.append(reference.meters[0].payload_bytes)
    size = 50 * 8 + 8  # parameters and the weight
    assert sent == [0, 0, 0, 0, 0, size, size, size, 2 * size], "counted on landing"
    reference.land()
    assert reference.meters[0].payload_bytes == 3 * size


def test_landing_early_gives_the_same_result() -> None:
    early, late = (ReferenceRun(PushSum(overlap=2), crowd(4, 5)) for _ in range(2))
    for reference in (early, late):
        for _ in range(2):
            step(reference)
    early.land()
    weight, share = mass(early)
    assert weight == 4
    late.land()
    assert same_bits(tensors(early.replicas), tensors(late.replicas))
    torch.testing.assert_close(share, mass(late)[1])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"codec": "fp16"}, "takes a codec, not 'fp16'"),
        ({"topology": 8}, "a topology, such as"),
        ({"overlap": -1}, "overlap of 0 steps or more, not -1"),
        ({"overlap": 0.5}, "overlap of 0 steps or more, not 0.5"),
        ({"fuse_below": -1}, "PushSum fuses tensors below 0 elements or more"),
    ],
)
def test_an_invalid_setting_is_an_error(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PushSum(**settings)
