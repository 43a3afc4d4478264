"""Replicas of several devices: placed parts, tensor-parallel plans, checkpoints and errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import thinwire
from tests.attach.processes import run
from thinwire import Replicator
from thinwire.simulate import InProcessCluster

STEPS = 4


class Network(nn.Module):
    """Two branches that join, so that the parts do not form a chain."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.left, self.right = nn.Linear(16, 8), nn.Linear(16, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(self.left(x) + self.right(x).sin())


def by_hand(network: Network, context: thinwire.Context) -> None:
    for name, index in (("first", 0), ("left", 1), ("right", 0), ("last", 1)):
        setattr(network, name, context.logical_device(index).place(getattr(network, name)))


def by_plan(network: Network, context: thinwire.Context) -> None:
    plan = {"first.0": ColwiseParallel(), "left": RowwiseParallel(), "right": RowwiseParallel()}
    if context.mesh is not None:
        parallelize_module(network, context.mesh, plan)


def batches(context: thinwire.Context) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(context.rank)
    while True:
        x = torch.randn(8, 6, generator=generator)
        yield x, x[:, :3].argmax(1)


def trained(split: Any, method: str = "dense", devices: int = 2, folder: str | None = None, steps: int = STEPS) -> Any:
    torch.set_num_threads(1)
    replicator = Replicator(method, devices_per_replica=devices)
    network = Network()
    if split is not None:
        split(network, replicator.context)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    replicator.wrap(network, optimizer)

    def step(context: thinwire.Context, batch: tuple[Tensor, Tensor]) -> float:
        loss = nn.functional.cross_entropy(network(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    losses = replicator.run(step, batches, steps, checkpoint=folder)
    parts = {name.replace(".part", ""): _local(p) for name, p in network.named_parameters()}
    return losses, {name: p.flatten().tolist() for name, p in parts.items()}, replicator.rank


def _local(p: Any) -> Tensor:
    return p.to_local() if hasattr(p, "to_local") else p


SIZES = {name: p.numel() for name, p in Network().named_parameters()}


def one_process_each() -> list[Any]:
    return InProcessCluster(2).run(lambda: trained(None, devices=1))


@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_parts_placed_by_hand_train_as_the_full_model_does(ranks):
    found = InProcessCluster(4).run(lambda: trained(by_hand)) if ranks == "threads" else run(trained, by_hand, ranks=4)
    assert [rank for *_, rank in found] == [0, 0, 1, 1]
    for losses, parts, rank in found:
        full_losses, full, _ = one_process_each()[rank]
        assert losses == pytest.approx(full_losses, rel=1e-6)
        assert 0 < len(parts) < len(SIZES), "no rank has all parameters"
        for name, values in parts.items():
            assert values == pytest.approx(full[name], rel=1e-4, abs=1e-6)
    assert found[0][1].keys() | found[1][1].keys() == SIZES.keys()
    assert not found[0][1].keys() & found[1][1].keys()
    assert [parts for _, parts, _ in found[:2]] == [parts for _, parts, _ in found[2:]], "replicas are identical"


def test_compression_works_on_tensor_parallel_parts():
    found = run(trained, by_plan, "ErrorFeedback(TopK(0.2))", 2, None, 100, ranks=4)
    assert [parts for _, parts, _ in found[:2]] == [parts for _, parts, _ in found[2:]], "replicas are identical"
    assert all(sum(losses[-10:]) < sum(losses[:10]) / 2 for losses, *_ in found)


def test_tensor_parallel_plans_train_as_the_full_model_does():
    found = run(trained, by_plan, ranks=4)
    for losses, parts, rank in found:
        assert losses == pytest.approx(one_process_each()[rank][0], rel=1e-5)
        assert len(parts["first.0.weight"]) == SIZES["first.0.weight"] // 2
        assert len(parts["left.weight"]) == SIZES["left.weight"] // 2
    assert [parts for _, parts, _ in found[:2]] == [parts for _, parts, _ in found[2:]], "replicas are identical"


def test_a_single_process_has_all_devices_of_its_replica():
    (losses, parts, _), plan = trained(by_hand), trained(by_plan)
    assert parts.keys() == SIZES.keys()
    assert losses == trained(None)[0] == plan[0]


@pytest.mark.parametrize("split", [by_hand, by_plan], ids=["by hand", "by plan"])
def test_split_replicas_resume_from_checkpoints(split, tmp_path):
    run(trained, split, "topk", 2, str(tmp_path), 2, ranks=4)
    assert len(list(Path(tmp_path).iterdir())) == 4
    resumed, uninterrupted = (
        run(trained, split, "topk", 2, str(tmp_path), ranks=4),
        run(trained, split, "topk", ranks=4),
    )
    for (later, same, _), (losses, parts, _) in zip(resumed, uninterrupted, strict=True):
        assert later == losses[2:]
        assert same == parts


def test_a_mesh_of_threads_is_an_error():
    with pytest.raises(ValueError, match="a torch DeviceMesh needs processes, and these ranks are threads"):
        InProcessCluster(4).run(lambda: trained(by_plan))


def test_a_missing_logical_device_is_an_error():
    with pytest.raises(ValueError, match="no logical device 1: a replica has 1"):
        Replicator().context.logical_device(1)


def test_factoring_split_layers_is_an_error():
    with pytest.raises(Exception, match=r"factors layers, but first\.0\.weight is split over processes"):
        run(trained, by_plan, "ab", ranks=4)


def several_outputs() -> list[float]:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.weight * x, x + y.square(), x.detach().argmax()

    context = Replicator(devices_per_replica=2).context
    part = context.logical_device(1).place(Both())
    x, y = torch.tensor([1.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0])
    left, right, at = part(x, y)
    (left.sum() * 10 + right.prod() + at).backward()
    return [*left.tolist(), *right.tolist(), int(at), *x.grad.tolist()]


def test_parts_take_and_return_several_tensors():
    expected = [2.0, 6.0, 26.0, 52.0, 1, 20.0 + 52.0, 20.0 + 26.0]
    assert InProcessCluster(2).run(several_outputs) == [expected] * 2


def attached_to_all() -> str:
    replicator = Replicator(devices_per_replica=2)
    network = Network()
    by_plan(network, replicator.context)
    try:
        thinwire.attach(network, "dense", optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
    except ValueError as error:
        return str(error)
    return "attached"


def test_attaching_split_layers_across_all_ranks_is_an_error():
    for rank, message in enumerate(run(attached_to_all, ranks=4)):
        assert message.startswith(
            f"first.0.weight is sharded over ranks {[0, 1] if rank < 2 else [2, 3]}, which have different"
        )


def parameters_held_in_full(method: str) -> list[float]:
    torch.set_num_threads(1)
    replicator = Replicator(method, devices_per_replica=2)
    torch.manual_seed(0)
    layers = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), nn.LayerNorm(3))
    parallelize_module(layers, replicator.context.mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    replicator.wrap(layers, optimizer)

    def step(context: thinwire.Context, batch: tuple[Tensor, Tensor]) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(layers(batch[0]), batch[1]).backward()
        optimizer.step()

    replicator.run(step, batches, 3)
    return [x for i in (0, 4) for p in layers[i].parameters() for x in p.tolist()]


@pytest.mark.parametrize("method", ["natural", "ErrorFeedback(TopK(0.3))"])
def test_parameters_that_both_devices_hold_stay_identical(method):
    first, *others = run(parameters_held_in_full, method, ranks=4)
    assert all(other == first for other in others)


def different_initial_values() -> str:
    replicator = Replicator(devices_per_replica=2)
    torch.manual_seed(torch.distributed.get_rank())  # or without a seed
    model = nn.Sequential(nn.Linear(3, 3), replicator.context.logical_device(1).place(nn.Linear(3, 2)))
    try:
        replicator.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    except ValueError as error:
        return str(error)
    return "wrapped"


def test_different_initial_values_on_the_devices_of_a_replica_are_an_error():
    for rank, message in enumerate(run(different_initial_values, ranks=4)):
        assert message.startswith(f"the devices of replica {rank // 2} have different initial values of '0.weight': ")


def batches_of_different_sizes() -> str:
    replicator = Replicator(devices_per_replica=2)
    part = replicator.context.logical_device(1).place(nn.Linear(3, 2))
    x = torch.ones(2 + replicator.context.logical_device(1).here, 3, requires_grad=True)
    try:
        part(x).sum().backward()
    except thinwire.ContractError as error:
        return str(error)
    return f"a gradient {x.grad}"


@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_calling_a_part_with_different_inputs_is_an_error_on_all_devices(ranks):
    first, second = (
        InProcessCluster(2).run(batches_of_different_sizes) if ranks == "threads" else run(batches_of_different_sizes)
    )
    assert first == second
    for device, rows in ((0, 2), (1, 3)):
        assert (
            f"device {device} of replica 0 calls a part on logical device 1 with float32[{rows}, 3] that needs" in first
        )


def named_inputs() -> list[float]:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor, mask: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
            x = self.weight * (x if mask is None else x * mask)
            return x if shift is None else x + shift

    context = Replicator(devices_per_replica=2).context
    part = context.logical_device(0).place(Scaled())
    x, shift = torch.tensor([1.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0], requires_grad=True)
    output = part(x, None, shift=shift)
    output.square().sum().backward()
    with pytest.raises(TypeError, match="takes tensors and None, not float"):
        part(x, shift=1.5)
    return [*output.tolist(), *x.grad.tolist(), *shift.grad.tolist()]


def test_parts_take_tensors_by_name_and_none():
    expected = [7.0, 13.0, 28.0, 52.0, 14.0, 26.0]
    assert InProcessCluster(2).run(named_inputs) == run(named_inputs) == [expected] * 2


@pytest.mark.parametrize(("devices", "index", "expected"), [(1, 0, 3), (2, 0, 3), (2, 1, 4)])
def test_logical_devices_of_one_process_start_at_its_own_device(devices, index, expected):
    context = Replicator(device="cuda:3", devices_per_replica=devices).context
    assert context.logical_device(index).device == torch.device("cuda", expected)


def through_parts(frozen: bool) -> list[float]:
    torch.manual_seed(0)
    context = Replicator(devices_per_replica=2).context
    low, up = nn.Sequential(nn.Flatten(), nn.Linear(3, 3)), nn.Linear(3, 1)
    low.requires_grad_(not frozen)
    lower, upper = context.logical_device(0).place(low), context.logical_device(1).place(up)
    output = upper(lower(torch.ones(2, 3)))
    output.sum().backward()
    mine = up if context.logical_device(1).here else low
    gradients = [p.grad.flatten().tolist() for p in mine.parameters() if p.grad is not None]
    return [*output.flatten().tolist(), *(x for gradient in gradients for x in gradient)]


@pytest.mark.parametrize(("frozen", "gradients"), [(True, (0, 4)), (False, (12, 4))])
@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_frozen_parts_get_no_gradients_on_any_device(ranks, frozen, gradients):
    found = InProcessCluster(2).run(lambda: through_parts(frozen)) if ranks == "threads" else run(through_parts, frozen)
    assert found[0][:2] == found[1][:2]
    assert tuple(len(values) - 2 for values in found) == gradients


def not_in_a_run() -> str:
    replicator = Replicator(devices_per_replica=2)
    part = replicator.context.logical_device(1).place(nn.Linear(3, 2))
    try:
        if replicator.context.logical_device(0).here:
            replicator.run(lambda context, x: part(x), lambda context: [torch.ones(1, 3)])
        else:
            part(torch.ones(1, 3))
    except thinwire.ContractError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("ranks", ["threads", "processes"])
def test_a_device_outside_of_run_is_an_error_on_all_devices(ranks):
    first, second = InProcessCluster(2).run(not_in_a_run) if ranks == "threads" else run(not_in_a_run)
    assert first == second
    assert "device 0 of replica 0 calls run() until inputs end" in first
    assert "device 1 of replica 0 calls a part on logical device 1" in first
