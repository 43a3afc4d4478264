"""DDP's buckets affect speed, never results."""

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import INPUTS, TINY_BUCKETS, all_same, buckets_of, classifier, loss_of, parameters, same, sgd, train

CAPS = (0.01, 1, 25)  # in MB


def wide() -> nn.Sequential:
    """Layers of more than a megabyte, so that every cap splits the model differently."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(INPUTS, 512), nn.ReLU(), nn.Linear(512, 600), nn.ReLU(), nn.Linear(600, 512), nn.ReLU(),
        nn.Linear(512, 10),
    )  # fmt: skip


def by_cap(method: str) -> list[tuple[int, dict]]:
    results = []
    for cap in CAPS:
        ddp = DistributedDataParallel(wide(), bucket_cap_mb=cap)
        handle = thinwire.attach(ddp, method)
        train(ddp, sgd(ddp, lr=0.02), range(4))
        handle.detach()
        results.append((buckets_of(ddp), parameters(ddp)))
    return results


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("method", ["dense", "powersgd", "topk", "int8", "sign"])
def test_results_do_not_depend_on_the_size_of_buckets(method: str, ranks: int) -> None:
    results = run(by_cap, method, ranks=ranks)
    counts = [buckets for buckets, _ in results[0]]
    assert len(set(counts)) == len(CAPS), "each cap must split the model differently for the test to be valid"
    assert counts[-1] == 1
    assert all_same(p for result in results for _, p in result)


class Pause(torch.autograd.Function):
    """Blocks backward until a condition is true."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, condition: Any) -> Tensor:
        ctx.condition = condition
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        deadline = time.monotonic() + 20
        while not ctx.condition():
            if time.monotonic() > deadline:
                raise AssertionError("nothing was exchanged while backward was still running")
            time.sleep(0.001)
        return gradient, None


class Paused(nn.Module):
    """A model whose backward reaches the first layer only after the other layers have been exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.first, *self.rest = classifier()
        self.rest = nn.Sequential(*self.rest)
        self.condition: Any = lambda: True

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(Pause.apply(self.first(x), self.condition))


def overlapped(method: str) -> dict:
    ddp = DistributedDataParallel(Paused(), bucket_cap_mb=TINY_BUCKETS)
    handle = thinwire.attach(ddp, method)
    optimizer = sgd(ddp)
    train(ddp, optimizer, range(2))  # the first step has one bucket, the second rebuilds them
    before = handle.state_dict()
    first_layer_missing = []

    def exchanged() -> bool:
        if handle.meter.rounds == before["meter"]["rounds"]:
            return False
        # A state changes at the end of a conversation. state_dict() waits for the exchange that is running, which is
        # safe here: it has started, so it ends without further buckets.
        now = handle.state_dict()
        if same(now["state"], before["state"]):
            return False
        first_layer_missing.append(ddp.module.first.weight.grad is None)
        return True

    ddp.module.condition = exchanged
    train(ddp, optimizer, [2])
    return {"first layer missing": first_layer_missing, "buckets": buckets_of(ddp), "parameters": parameters(ddp)}


@pytest.mark.parametrize("method", ["dense", "topk", "powersgd"])
def test_early_buckets_are_exchanged_while_backward_still_runs(method: str) -> None:
    results = run(overlapped, method)
    assert all_same(result["parameters"] for result in results)
    for result in results:
        assert result["buckets"] >= 3
        assert result["first layer missing"] == [True], "the first layer's gradient must not be computed yet"


class SumOverRanks(torch.autograd.Function):
    """A collective of the user in forward and in backward, as in SyncBatchNorm."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class Centered(nn.Module):
    """Subtracts the mean over the batches of all ranks."""

    def forward(self, x: Tensor) -> Tensor:
        return x - SumOverRanks.apply(x.mean(0)) / dist.get_world_size()


def synchronized() -> nn.Sequential:
    layers = list(classifier())
    return nn.Sequential(*(layer for pair in zip(layers, [Centered() for _ in layers], strict=True) for layer in pair))


def with_collectives_in_backward(method: str | None) -> tuple[int, dict]:
    ddp = DistributedDataParallel(synchronized(), bucket_cap_mb=TINY_BUCKETS)
    if method is not None:
        thinwire.attach(ddp, method)
    train(ddp, sgd(ddp), range(6))
    return buckets_of(ddp), parameters(ddp)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("method", ["dense", "powersgd", "topk", "int8"])
def test_collectives_of_the_user_in_backward_do_not_mix_with_thinwires(method: str, ranks: int) -> None:
    results = run(with_collectives_in_backward, method, ranks=ranks)
    assert all(buckets >= 3 for buckets, _ in results)
    assert all_same(p for _, p in results)
    if method == "dense" and ranks == 2:
        assert same(results[0][1], run(with_collectives_in_backward, None)[0][1])


def after_first_steps(method: str) -> list[dict]:
    """The keys of the state after each of the steps in which DDP rebuilds its buckets."""
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=TINY_BUCKETS)
    handle = thinwire.attach(ddp, method)
    keys = []
    for step in range(3):
        ddp.zero_grad()
        loss_of(ddp, step).backward()
        keys.append(sorted(handle.state_dict()["state"]))
    return keys


@pytest.mark.parametrize("method", ["powersgd", "topk"])
def test_states_belong_to_parameters_not_to_buckets(method: str) -> None:
    for keys in run(after_first_steps, method):
        assert keys[0] == keys[1] == keys[2]
        names = [name for key in keys[0] for name in key.split(",")]
        assert sorted(names) == sorted(parameters(classifier()))
