"""Kinds of models: dtypes, tied and frozen parameters, sizes, memory formats, and a world size of 1."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

import thinwire

from .processes import run
from .training import (
    BASIC_KINDS,
    CLASSES,
    INPUTS,
    KINDS,
    TINY_BUCKETS,
    all_same,
    classifier,
    gradients,
    held_out_loss,
    loss_of,
    parameters,
    same,
    sgd,
    totals,
    train,
)


class Mixed(nn.Module):
    """Layers of three dtypes in one model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.low = nn.Linear(INPUTS, 64, dtype=torch.bfloat16)
        self.high = nn.Linear(64, 64, dtype=torch.float64)
        self.last = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.low(x.bfloat16()).tanh()
        x = self.high(x.double()).tanh()
        return self.last(x.float())


class Tied(nn.Module):
    """One weight shared by two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.front = nn.Linear(INPUTS, 32)
        self.first = nn.Linear(32, 48)
        self.second = nn.Linear(32, 48)
        self.second.weight = self.first.weight
        self.back = nn.Linear(48, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.front(x)
        return self.back((self.first(x) + self.second(x.tanh())).tanh())


class Uneven(nn.Module):
    """A very large parameter and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.giant = nn.Linear(INPUTS, 60_000, bias=False)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.giant(x).view(len(x), CLASSES, -1).mean(2) * self.scale * 10


class Convolution(nn.Module):
    """Weights whose entries do not lie in memory in the order of their indices."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 32, 3, padding=1)
        self.last = nn.Linear(32 * INPUTS, CLASSES)
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 1, 4, INPUTS // 4).to(memory_format=torch.channels_last)
        return self.last(self.second(self.first(x).tanh()).tanh().flatten(1))


def frozen() -> nn.Sequential:
    model = classifier()
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def trained(build: Callable[[], nn.Module], method: str | None, options: dict) -> dict:
    ddp = DistributedDataParallel(build(), **options)
    handle = None if method is None else thinwire.attach(ddp, method)
    before = held_out_loss(ddp)
    train(ddp, sgd(ddp), range(12))
    return {
        "losses": (before, held_out_loss(ddp)),
        "parameters": parameters(ddp),
        "keys": handle and list(handle.state_dict()["state"]),
        "totals": handle and totals(handle),
    }


def names_in(keys: list[str]) -> list[str]:
    return sorted(name for key in keys for name in key.split(","))


def check(build: Callable[[], nn.Module], method: str, **options: Any) -> list[dict]:
    """Check that training lowers the loss, replicas stay equal, and dense equals plain DDP."""
    results = run(trained, build, method, options)
    assert all_same(result["parameters"] for result in results)
    before, after = results[0]["losses"]
    assert after < before
    if method == "dense":
        assert all_same(result["parameters"] for result in [*results, *run(trained, build, None, options)])
    return results


@pytest.mark.parametrize("method", KINDS)
def test_parameters_of_several_dtypes(method: str) -> None:
    results = check(Mixed, method)
    before = parameters(Mixed())
    for name, p in results[0]["parameters"].items():
        assert p.dtype == before[name].dtype
        assert p.isfinite().all()
    moved = {name.split(".")[0] for name, p in results[0]["parameters"].items() if not same(p, before[name])}
    assert moved == {"low", "high", "last"}


@pytest.mark.parametrize("method", BASIC_KINDS)
def test_parameters_of_several_dtypes_in_many_buckets(method: str) -> None:
    check(Mixed, method, bucket_cap_mb=TINY_BUCKETS)


@pytest.mark.parametrize("method", BASIC_KINDS)
def test_a_tied_weight_is_one_parameter(method: str) -> None:
    results = check(Tied, method)
    for result in results:
        assert names_in(result["keys"]).count("first.weight") == 1
        assert "second.weight" not in names_in(result["keys"])
        # A tied weight counts once, as in parameters().
        assert result["totals"]["dense_bytes"] == 12 * sum(p.nbytes for p in result["parameters"].values())


@pytest.mark.parametrize("method", BASIC_KINDS)
def test_frozen_parameters_are_not_exchanged(method: str) -> None:
    results = check(frozen, method)
    before = parameters(frozen())
    for name in ("0.weight", "0.bias", "2.bias"):
        assert same(results[0]["parameters"][name], before[name])
    assert names_in(results[0]["keys"]) == ["2.weight", "4.bias", "4.weight"]


@pytest.mark.parametrize("method", BASIC_KINDS)
def test_a_very_large_parameter_beside_a_scalar(method: str) -> None:
    check(Uneven, method)


@pytest.mark.parametrize("method", KINDS)
def test_channels_last(method: str) -> None:
    assert not Convolution().second.weight.is_contiguous(), "otherwise the test would check nothing"
    check(Convolution, method)


def alone(method: str) -> dict:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, method)
    before = held_out_loss(ddp)
    train(ddp, sgd(ddp), range(40))
    return {"losses": (before, held_out_loss(ddp)), "totals": totals(handle)}


@pytest.mark.parametrize("method", KINDS)
def test_a_single_rank_trains_and_sends_nothing(method: str) -> None:
    (result,) = run(alone, method, ranks=1)
    before, after = result["losses"]
    assert after < 0.9 * before
    assert result["totals"]["steps"] == 40
    assert result["totals"]["link_bytes"] == 0


def trained_under_autocast(method: str | None, backward_too: bool) -> dict:
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=TINY_BUCKETS)
    if method is not None:
        thinwire.attach(ddp, method)
    optimizer = sgd(ddp)
    for step in range(5):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(ddp, step)
            if backward_too:
                loss.backward()
        if not backward_too:
            loss.backward()
        optimizer.step()
    return parameters(ddp)


@pytest.mark.parametrize("method", BASIC_KINDS)
def test_autocast_does_not_affect_the_exchange(method: str) -> None:
    results = run(trained_under_autocast, method, False)
    # The exchange runs during backward; the caller's autocast must not lower its precision.
    assert all_same([*results, *run(trained_under_autocast, method, True)])
    if method == "dense":
        assert all_same([*results, *run(trained_under_autocast, None, False)])
        assert all_same([*results, *run(trained_under_autocast, None, True)])


def clipped(method: str | None) -> tuple[float, dict, dict]:
    ddp = DistributedDataParallel(classifier())
    if method is not None:
        thinwire.attach(ddp, method)
    loss_of(ddp, 0).backward()
    averaged = gradients(ddp)
    norm = clip_grad_norm_(ddp.parameters(), 0.01)
    return norm.item(), averaged, gradients(ddp)


@pytest.mark.parametrize("method", BASIC_KINDS)
def test_clipping_uses_the_averaged_gradient(method: str) -> None:
    results = run(clipped, method)
    assert all_same(results)
    norm, averaged, clipped_gradients = results[0]
    total = torch.cat([gradient.flatten() for gradient in averaged.values()]).norm().item()
    assert norm == pytest.approx(total, rel=1e-5)
    assert norm > 0.01, "there must be something to clip"
    for name, gradient in clipped_gradients.items():
        torch.testing.assert_close(gradient, averaged[name] * 0.01 / total)
    if method == "dense":
        assert all_same([*results, *run(clipped, None)])
