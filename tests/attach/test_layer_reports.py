"""handle.layers(): bytes per layer that add up to the meter's, and the norms of residuals."""

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import NAMES, classifier, sgd, train

STEPS = 3
WITH_RESIDUAL = {"adacomp": {"2.weight"}, "powersgd": {"0.weight", "2.weight", "4.weight"}, "dense": set()}


def reports(method: Any, mode: str) -> dict[str, Any]:
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
    residuals = {key: state[0] for key, state in states.items() if isinstance(state, tuple)}  # of units that have one
    return {"before": before, "after": handle.layers(), "meter": handle.meter, "residuals": residuals}


@pytest.mark.parametrize("mode", ["ddp", "optimizer"])
@pytest.mark.parametrize("method", ["adacomp", "powersgd", "dense"])
def test_the_bytes_of_layers_add_up_to_the_meters(method: str, mode: str) -> None:
    for rank in run(reports, method, mode):
        layers, meter = rank["after"], rank["meter"]
        assert sum(layer.elements for layer in layers.values()) == sum(p.numel() for p in classifier().parameters())
        assert sum(layer.dense_bytes for layer in layers.values()) == meter.dense_bytes
        assert all(layer.dense_bytes == 4 * STEPS * layer.elements for layer in layers.values())
        # With a plain module, flags of used parameters are sent as well, and belong to no layer.
        others = meter.payload_by_unit.get("", 0)
        assert (others > 0) == (mode == "optimizer")
        assert sum(layer.payload_bytes for layer in layers.values()) == meter.payload_bytes - others
        assert all(layer.ratio == layer.dense_bytes / layer.payload_bytes for layer in layers.values())
        assert {layer.kind for layer in layers.values()} == {"dense", "small ones"}


@pytest.mark.parametrize("method", ["adacomp", "powersgd", "dense"])
def test_the_residual_is_the_norm_of_the_saved_residual(method: str) -> None:
    for rank in run(reports, method, "ddp"):
        layers, with_residual = rank["after"], WITH_RESIDUAL[method]
        assert {key for key, layer in layers.items() if layer.residual is not None} == with_residual
        for key in with_residual:
            assert layers[key].residual == pytest.approx(rank["residuals"][key].double().norm().item(), rel=1e-12)
            assert layers[key].residual > 0
            assert layers[key].ratio > 1
        assert all(layer.residual in (None, 0) for layer in rank["before"].values())
        assert all(layer.payload_bytes == 0 and layer.ratio == 1 for layer in rank["before"].values())


def test_there_is_no_residual_during_warm_up() -> None:
    method = thinwire.WarmUp(2, thinwire.ErrorFeedback(thinwire.TopK(0.01)))
    for rank in run(reports, method, "ddp"):
        assert all(layer.residual for layer in rank["after"].values())
        assert all(layer.residual is None for layer in rank["before"].values())
        assert all(1 < layer.ratio < STEPS / 2 for layer in rank["after"].values()), "two of three steps were dense"


def skipped_step() -> tuple[bool, bool]:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "topk", on_nonfinite="skip")
    optimizer = sgd(ddp)
    train(ddp, optimizer, range(1))
    before = handle.layers()
    ddp(torch.full((1, 20), torch.nan)).sum().backward()
    after = handle.layers()
    same = all(after[key].residual == before[key].residual for key in after)
    bytes_counted = all(after[key].payload_bytes == 2 * before[key].payload_bytes for key in after)
    return same, bytes_counted


def test_a_skipped_step_counts_its_bytes_and_keeps_the_residual() -> None:
    assert run(skipped_step) == [(True, True)] * 2


@pytest.mark.parametrize("method", NAMES)
def test_every_short_name_reports_layers(method: str) -> None:
    for rank in run(reports, method, "ddp"):
        assert sum(layer.payload_bytes for layer in rank["after"].values()) == rank["meter"].payload_bytes > 0
