"""DDP's features work as without thinwire."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import thinwire

from .processes import run
from .training import (
    CLASSES,
    INPUTS,
    TINY_BUCKETS,
    all_same,
    batch,
    classifier,
    error_of,
    gradients,
    loss_of,
    parameters,
    same,
    sgd,
    totals,
    train,
    trained_ddp,
)

METHODS = ["dense", "powersgd", "topk", "int8", "sign"]


def accumulated(method: str) -> dict:
    """Three backward passes and one exchange: with no_sync, and with a plain module."""
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=TINY_BUCKETS)
    handle = thinwire.attach(ddp, method)
    plain = classifier()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.0)
    plain_module = thinwire.attach(plain, method, optimizer=optimizer)
    results = []
    for step in range(3):
        ddp.zero_grad()
        before = totals(handle)
        with ddp.no_sync():
            for micro in range(2):
                loss_of(ddp, 10 * step + micro).backward()
        silent = totals(handle) == before
        loss_of(ddp, 10 * step + 2).backward()

        optimizer.zero_grad()
        for micro in range(3):
            loss_of(plain, 10 * step + micro).backward()
        optimizer.step()
        results.append((silent, gradients(ddp), gradients(plain)))
    return {"results": results, "steps": (handle.meter.steps, plain_module.meter.steps)}


@pytest.mark.parametrize("method", METHODS)
def test_no_sync_sends_nothing_and_the_next_backward_exchanges_the_sum(method: str) -> None:
    ranks = run(accumulated, method)
    for rank in ranks:
        assert rank["steps"] == (3, 3)
        for silent, by_no_sync, plain_module in rank["results"]:
            assert silent
            assert same(by_no_sync, plain_module)
    assert all_same([by_no_sync for _, by_no_sync, _ in rank["results"]] for rank in ranks)


class Branches(nn.Module):
    """A branch that only rank 0 uses, one that all ranks use, and one that no rank uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Linear(INPUTS, 64)
        self.used_by_all, self.used_by_rank_0, self.unused = (nn.Linear(64, CLASSES) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.trunk(x).tanh()
        return self.used_by_all(hidden) + (self.used_by_rank_0(hidden) if dist.get_rank() == 0 else 0)


def with_unused(method: str | None) -> dict:
    ddp = DistributedDataParallel(Branches(), find_unused_parameters=True, bucket_cap_mb=TINY_BUCKETS)
    if method is not None:
        thinwire.attach(ddp, method)
    train(ddp, sgd(ddp), range(6))
    return {"parameters": parameters(ddp), "gradients": gradients(ddp)}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("method", METHODS)
def test_unused_parameters_are_reduced_if_any_rank_uses_them(method: str, ranks: int) -> None:
    results = run(with_unused, method, ranks=ranks)
    initial = parameters(Branches())
    assert all_same(results)
    moved = {name.split(".")[0] for name, p in results[0]["parameters"].items() if not same(p, initial[name])}
    reduced = {name.split(".")[0] for name, gradient in results[0]["gradients"].items() if gradient is not None}
    assert moved == reduced == {"trunk", "used_by_all", "used_by_rank_0"}
    if method == "dense" and ranks == 2:
        assert all_same([*results, *run(with_unused, None)])


def with_options(method: str, options: dict) -> tuple[dict, dict]:
    return trained_ddp(method, 5, **options), trained_ddp(method, 5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "options",
    [
        {"static_graph": True},
        {"gradient_as_bucket_view": True},
        {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": TINY_BUCKETS},
    ],
    ids="-".join,
)
def test_ddp_options_do_not_change_results(options: dict, method: str) -> None:
    results = run(with_options, method, options)
    assert all_same(p for result in results for p in result)


class Checkpointed(nn.Module):
    """Recomputes its middle in backward; with reentrant checkpointing, in a nested backward pass."""

    def __init__(self, use_reentrant: bool | None) -> None:
        super().__init__()
        self.first, *middle, self.last = classifier()
        self.middle = nn.Sequential(*middle)
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.use_reentrant is None:
            return self.last(self.middle(x))
        return self.last(checkpoint(self.middle, x, use_reentrant=self.use_reentrant))


def with_checkpoints(method: str) -> list[dict]:
    return [
        trained_ddp(method, 5, partial(Checkpointed, use_reentrant), bucket_cap_mb=TINY_BUCKETS)
        for use_reentrant in (None, False, True)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_activation_checkpointing_does_not_change_results(method: str) -> None:
    results = run(with_checkpoints, method)
    assert all_same(p for result in results for p in result)


BATCHES = (3, 5)  # of rank 0 and of rank 1


def uneven(method: str | None) -> dict:
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=TINY_BUCKETS)
    handle = None if method is None else thinwire.attach(ddp, method)
    optimizer = sgd(ddp)
    with Join([ddp]):
        train(ddp, optimizer, range(BATCHES[dist.get_rank()]))
    return {"parameters": parameters(ddp), "totals": handle and totals(handle)}


@pytest.mark.parametrize("method", ["dense", "powersgd", "topk"])
def test_ranks_with_fewer_batches_may_join(method: str) -> None:
    results = run(uneven, method)
    assert all_same(result["parameters"] for result in results)
    for result in results:
        assert result["totals"]["steps"] == max(BATCHES)
        assert result["totals"]["dense_bytes"] == max(BATCHES) * sum(p.nbytes for p in result["parameters"].values())
    assert results[0]["totals"]["rounds"] == results[1]["totals"]["rounds"]
    if method == "dense":
        assert all_same(result["parameters"] for result in [*results, *run(uneven, None)])


def joined_with_changing_divisor() -> tuple[str, str]:
    ddp = DistributedDataParallel(classifier())
    thinwire.attach(ddp, "topk")
    optimizer = sgd(ddp)

    def training() -> None:
        with Join([ddp], divide_by_initial_world_size=False):
            train(ddp, optimizer, range(BATCHES[dist.get_rank()]))

    return error_of(training)


def test_join_with_a_changing_divisor_is_an_error() -> None:
    for kind, text in run(joined_with_changing_divisor):
        assert kind == "ValueError"
        assert "divide_by_initial_world_size=False" in text


def train_with_batch_norm(method: str | None) -> dict:
    torch.manual_seed(dist.get_rank())  # DDP copies the parameters of rank 0
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, CLASSES))
    ddp = DistributedDataParallel(model)
    if method is not None:
        thinwire.attach(ddp, method)
    train(ddp, sgd(ddp), range(5))
    ddp(batch(5)[0])  # at the start of forward, DDP copies the buffers of rank 0
    return {"parameters": parameters(ddp), "buffers": dict(ddp.module.named_buffers())}


@pytest.mark.parametrize("method", ["dense", "powersgd", "topk", "sign"])
def test_batch_norm_buffers_are_synchronized_by_ddp(method: str) -> None:
    results = run(train_with_batch_norm, method)
    assert all_same(result["parameters"] for result in results)
    if method == "dense":
        plain = run(train_with_batch_norm, None)
        for result, expected in zip(results, plain, strict=True):
            assert same(result, expected)
