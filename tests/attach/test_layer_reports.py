"""What is told of each layer: bytes that add up to the meter's, and how much is left unsaid."""

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import NAMES, classifier, sgd, train

STEPS = 3
REMEMBERING = {"adacomp": {"2.weight"}, "powersgd": {"0.weight", "2.weight", "4.weight"}, "dense": set()}


def told(method: Any, mode: str) -> dict[str, Any]:
    model = classifier()
    optimizer = sgd(model)
    if mode == "ddp":
        model = DistributedDataParallel(model)
        handle = thinwire.attach(model, method)
    else:
        handle = thinwire.attach(model, method, optimizer=optimizer)
    before = handle.layers()
    train(model, optimizer, range(STEPS))
    states = handle.state_dict()["state"]
    residuals = {key: state[0] for key, state in states.items() if isinstance(state, tuple)}  # where it is remembered
    return {"before": before, "after": handle.layers(), "meter": handle.meter, "residuals": residuals}


@pytest.mark.parametrize("mode", ["ddp", "optimizer"])
@pytest.mark.parametrize("method", ["adacomp", "powersgd", "dense"])
def test_layers_add_up_to_what_the_meter_counts(method: str, mode: str) -> None:
    for rank in run(told, method, mode):
        layers, meter = rank["after"], rank["meter"]
        assert sum(layer.elements for layer in layers.values()) == sum(p.numel() for p in classifier().parameters())
        assert sum(layer.dense_bytes for layer in layers.values()) == meter.dense_bytes
        assert all(layer.dense_bytes == 4 * STEPS * layer.elements for layer in layers.values())
        # The ranks of a plain module also tell each other which parameters were used: about no layer.
        others = meter.payload_by_unit.get("", 0)
        assert (others > 0) == (mode == "optimizer")
        assert sum(layer.payload_bytes for layer in layers.values()) == meter.payload_bytes - others
        assert all(layer.ratio == layer.dense_bytes / layer.payload_bytes for layer in layers.values())
        assert {layer.kind for layer in layers.values()} == {"dense", "small ones"}


@pytest.mark.parametrize("method", ["adacomp", "powersgd", "dense"])
def test_what_is_left_unsaid_is_what_a_checkpoint_remembers(method: str) -> None:
    for rank in run(told, method, "ddp"):
        layers, remembering = rank["after"], REMEMBERING[method]
        assert {key for key, layer in layers.items() if layer.residual is not None} == remembering
        for key in remembering:
            assert layers[key].residual == pytest.approx(rank["residuals"][key].double().norm().item(), rel=1e-12)
            assert layers[key].residual > 0
            assert layers[key].ratio > 1
        assert all(layer.residual in (None, 0) for layer in rank["before"].values())
        assert all(layer.payload_bytes == 0 and layer.ratio == 1 for layer in rank["before"].values())


def test_a_warm_up_remembers_nothing_yet() -> None:
    method = thinwire.WarmUp(2, thinwire.ErrorFeedback(thinwire.TopK(0.01)))
    for rank in run(told, method, "ddp"):
        assert all(layer.residual for layer in rank["after"].values())
        assert all(layer.residual is None for layer in rank["before"].values())
        assert all(1 < layer.ratio < STEPS / 2 for layer in rank["after"].values()), "two of three steps were dense"


def lost() -> tuple[bool, bool]:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "topk", on_nonfinite="skip")
    optimizer = sgd(ddp)
    train(ddp, optimizer, range(1))
    before = handle.layers()
    ddp(torch.full((1, 20), torch.nan)).sum().backward()
    after = handle.layers()
    same = all(after[key].residual == before[key].residual for key in after)
    counted = all(after[key].payload_bytes == 2 * before[key].payload_bytes for key in after)
    return same, counted


def test_a_lost_step_was_said_and_leaves_what_is_unsaid_as_it_was() -> None:
    assert run(lost) == [(True, True)] * 2


@pytest.mark.parametrize("method", NAMES)
def test_every_short_name_tells(method: str) -> None:
    for rank in run(told, method, "ddp"):
        assert sum(layer.payload_bytes for layer in rank["after"].values()) == rank["meter"].payload_bytes > 0
