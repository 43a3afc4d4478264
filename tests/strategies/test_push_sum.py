"""Stochastic Gradient Push: nothing is lost on the way, whatever is under way."""

from typing import Any

import pytest
import torch
from torch import Tensor

from thinwire import Cast, Complete, Edges, Exponential, Identity, PushSum, Quantize, Ring
from thinwire.extend import Codec, Replica, Topology

from ..helpers import same_bits
from ..rehearsal import Rehearsal

DIRECTED = Edges(((0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 3)), directed=True)


def crowd(ranks: int, *shape: int, dtype: torch.dtype = torch.float64) -> list[Replica]:
    draw = torch.Generator().manual_seed(0)
    xs = [torch.randn(shape, generator=draw, dtype=dtype) for _ in range(ranks)]
    return [Replica.of({"w": x}, "dense", rank, ranks) for rank, x in enumerate(xs)]


def tensors(ranks: list[Replica]) -> Tensor:
    return torch.stack([replica.parameters["w"] for replica in ranks])


def step(between: Rehearsal, updates: list[Tensor] | None = None) -> None:
    between.before_update()
    for replica, update in zip(between.replicas, updates or [], strict=False):
        replica.parameters["w"].sub_(update)
    between.after_update()


def mass(between: Rehearsal) -> tuple[float, Tensor]:
    """The weights and the shares of all ranks, without what is on its way."""
    weights = [state.weight for state in between.states]
    shares = [w * replica.parameters["w"] for w, replica in zip(weights, between.replicas, strict=True)]
    return sum(weights), torch.stack(shares).sum(0)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32])
def test_all_have_the_mean_after_one_turn_of_the_exponential_graph(ranks: int) -> None:
    replicas = crowd(ranks, 5)
    mean = tensors(replicas).mean(0)
    between = Rehearsal(PushSum(), replicas)
    for turn in range(ranks.bit_length() - 1):
        assert (tensors(replicas) - mean).abs().max() > 1e-3, turn
        step(between)
    torch.testing.assert_close(tensors(replicas), mean.expand(ranks, -1), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("topology", [Exponential(), Exponential(2), Ring(), Complete(), DIRECTED], ids=repr)
@pytest.mark.parametrize("overlap", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", [Identity(), Cast("float16"), Quantize(8)], ids=repr)
def test_no_mass_is_lost_while_ranks_train(topology: Topology, overlap: int, codec: Codec) -> None:
    replicas = crowd(4, 6, 7)
    between = Rehearsal(PushSum(codec, topology, overlap=overlap), replicas)
    total = tensors(replicas).sum(0)
    draw = torch.Generator().manual_seed(1)
    for _ in range(13):
        updates = [0.1 * torch.randn(6, 7, generator=draw, dtype=torch.float64) for _ in range(4)]
        step(between, updates)
        total = total - sum(updates)
    between.land()
    weight, share = mass(between)
    assert weight == pytest.approx(4, rel=1e-12)
    torch.testing.assert_close(share, total, rtol=1e-10, atol=1e-10)
    found = between.consensus()
    torch.testing.assert_close(found.means["w"], total / 4, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("overlap", [1, 2])
def test_while_a_message_travels_its_sender_weighs_less_and_steps_further(overlap: int) -> None:
    replicas = crowd(2, 3)
    between = Rehearsal(PushSum(overlap=overlap), replicas)
    for _ in range(overlap):
        step(between)
    assert [state.weight for state in between.states] == [0.5, 0.5]
    before = tensors(replicas).clone()
    between.before_update()
    for replica in replicas:
        replica.parameters["w"].sub_(1.0)  # what the optimizer does, weight decay and all, is of the parameters
    after = before - 2.0  # the share moves by 1, and parameters are the share over its weight
    if overlap == 1:  # what was launched lands, and the next is launched
        after = after * 0.5 + 0.5 * before.flip(0)
    between.after_update()
    torch.testing.assert_close(tensors(replicas), after)


def test_one_way_graphs_are_weighed_right() -> None:
    # Rank 0 speaks to all, the others to one: without weights, the mean of what ranks hold would not be the mean.
    replicas = crowd(4, 9)
    mean = tensors(replicas).mean(0)
    between = Rehearsal(PushSum(topology=DIRECTED), replicas)
    weights = set()
    for _ in range(80):
        step(between)
        weights |= {round(state.weight, 6) for state in between.states}
    torch.testing.assert_close(tensors(replicas), mean.expand(4, -1), rtol=1e-9, atol=1e-9)
    assert len(weights) > 10


def test_the_weight_stays_exactly_one_where_all_speak_alike() -> None:
    between = Rehearsal(PushSum(), crowd(8, 4))
    for _ in range(20):
        step(between)
        assert [state.weight for state in between.states] == [1.0] * 8


def test_messages_travel_for_as_many_steps_as_they_may() -> None:
    between = Rehearsal(PushSum(overlap=3), crowd(4, 50))
    sent = []
    for _ in range(9):
        step(between)
        sent.append(between.meters[0].payload_bytes)
    size = 50 * 8 + 8  # and the weight
    assert sent == [0, 0, 0, 0, 0, size, size, size, 2 * size], "counted as they land, where the next is launched"
    between.land()
    assert between.meters[0].payload_bytes == 3 * size


def test_finishing_early_is_as_good() -> None:
    asked, not_asked = (Rehearsal(PushSum(overlap=2), crowd(4, 5)) for _ in range(2))
    for between in (asked, not_asked):
        for _ in range(2):
            step(between)
    asked.land()
    weight, share = mass(asked)
    assert weight == 4
    not_asked.land()
    assert same_bits(tensors(asked.replicas), tensors(not_asked.replicas))
    torch.testing.assert_close(share, mass(not_asked)[1])


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
def test_what_cannot_be_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PushSum(**settings)
