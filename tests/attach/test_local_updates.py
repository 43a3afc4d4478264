"""Local steps and synchronizations on real ranks: equal to a simulation to the bit, and resumed to the bit."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer
from torch.utils.data import DataLoader, TensorDataset

import thinwire
from thinwire import inspect, strategy_of
from thinwire.simulate import replica_of

from ..contracts.table import LOCAL
from ..reference_run import ReferenceRun
from .processes import run
from .training import (
    INPUTS,
    all_same,
    batch,
    classifier,
    error_of,
    held_out_loss,
    loss_of,
    parameters,
    same,
    sgd,
    train,
)

METHODS = tuple(map(repr, LOCAL))
STEPS = 9


def normed() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(INPUTS, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 10))


def optimizer_of(kind: str, model: nn.Module) -> Optimizer:
    if kind == "adam":
        return Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    return SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def attached(model: nn.Module, method: str, optimizer: Optimizer) -> thinwire.Handle:
    warnings.filterwarnings("ignore", message=".* saves nothing")  # some methods do not, on such a small model
    return thinwire.attach(model, method, optimizer=optimizer)


def counts(meter: inspect.Meter) -> dict[str, Any]:
    numbers = {name: value for name, value in meter.as_dict(prefix="").items() if not name.endswith("_seconds")}
    return numbers | meter.itemized()


def trained(methods: tuple[str, ...], kind: str) -> list[Any]:
    found = []
    for method in methods:
        model = normed()
        optimizer = optimizer_of(kind, model)
        handle = attached(model, method, optimizer)
        train(model, optimizer, range(STEPS), handle=handle)
        handle.detach()  # waits for a synchronization that is in flight, and applies it
        found.append((parameters(model), counts(handle.meter)))
    return found


def simulated(method: str, ranks: int, kind: str) -> list[Any]:
    models = [normed() for _ in range(ranks)]
    optimizers = [optimizer_of(kind, model) for model in models]
    replicas = [replica_of(model, rank=rank, size=ranks) for rank, model in enumerate(models)]
    reference = ReferenceRun(strategy_of(method), replicas)
    for step in range(STEPS):
        losses = []
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss = loss_of(model, step, rank)
            loss.backward()
            losses.append(loss.item())
        reference.before_update(losses)
        for optimizer in optimizers:
            optimizer.step()
        reference.after_update()
    reference.land()
    return [(parameters(model), counts(meter)) for model, meter in zip(models, reference.meters, strict=True)]


@pytest.mark.parametrize(("ranks", "kind"), [(4, "sgd"), (2, "adam")])
def test_real_ranks_equal_simulated_ranks_in_bits_and_bytes(ranks: int, kind: str) -> None:
    real = run(trained, METHODS, kind, ranks=ranks)
    for i, method in enumerate(METHODS):
        expected = simulated(method, ranks, kind)
        for rank in range(ranks):
            assert same(real[rank][i][0], expected[rank][0]), (method, rank)
            assert real[rank][i][1] == expected[rank][1], (method, rank)


SAVED_AT = (1, 3)  # in a warm-up, with a synchronization in flight; tests/contracts covers all steps


def uninterrupted_run() -> list[Any]:
    found = []
    for method in METHODS:
        for at in SAVED_AT:
            model = normed()
            optimizer = sgd(model)
            handle = attached(model, method, optimizer)
            train(model, optimizer, range(at + 4), handle=handle)
            handle.detach()
            found.append((parameters(model), counts(handle.meter)))
    return found


def first_half(folder: Path) -> None:
    for i, method in enumerate(METHODS):
        for at in SAVED_AT:
            model = normed()
            optimizer = sgd(model)
            handle = attached(model, method, optimizer)
            train(model, optimizer, range(at), handle=handle)
            saved = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "thinwire": handle.state_dict(),  # a synchronization in flight is saved, not applied
            }
            torch.save(saved, folder / f"{i}-{at}-{dist.get_rank()}.pt")
            handle.detach()


def second_half(folder: Path) -> list[Any]:
    found = []
    for i, method in enumerate(METHODS):
        for at in SAVED_AT:
            saved = torch.load(folder / f"{i}-{at}-{dist.get_rank()}.pt", weights_only=True)
            model = normed()
            optimizer = sgd(model)
            handle = attached(model, method, optimizer)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            handle.load_state_dict(saved["thinwire"])
            train(model, optimizer, range(at, at + 4), handle=handle)
            handle.detach()
            found.append((parameters(model), counts(handle.meter)))
    return found


def test_training_resumes_to_the_bit_in_every_phase(tmp_path: Path) -> None:
    uninterrupted = run(uninterrupted_run, ranks=2)
    run(first_half, tmp_path, ranks=2)
    resumed = run(second_half, tmp_path, ranks=2)
    for expected, found in zip(uninterrupted, resumed, strict=True):
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert same(one, other), (METHODS[i // len(SAVED_AT)], SAVED_AT[i % len(SAVED_AT)])


def learned(method: str) -> tuple[float, float, float]:
    model = classifier()
    optimizer = Adam(model.parameters(), lr=0.01) if method == "diloco" else SGD(model.parameters(), lr=0.5)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    before = held_out_loss(model)
    train(model, optimizer, range(100), handle=handle)
    return before, held_out_loss(model), held_out_loss(handle.average())


@pytest.mark.parametrize("method", ["local", "diloco", "sparseloco", "easgd", "lsgd"])
def test_replicas_and_their_average_learn(method: str) -> None:
    for before, own, average in run(learned, method, ranks=4):
        assert average < 0.6 * before
        assert own < 0.75 * before


def leader_and_center() -> dict[str, Any]:
    """The leader and the center, the local model, and the error where there is none."""
    found: dict[str, Any] = {"rank": dist.get_rank()}
    for name, method in (("leader", "LeaderSGD(every=4, pull=0.5)"), ("center", "EASGD(every=2)")):
        model = normed()
        optimizer = sgd(model)
        handle = attached(model, method, optimizer)
        train(model, optimizer, range(3), handle=handle)
        found[name] = getattr(handle, name)().state_dict()
        found[f"{name} local"] = {key: x.clone() for key, x in model.state_dict().items()}
        found[f"{name} error"] = error_of(handle.center if name == "leader" else handle.leader)
        found[f"{name} bytes"] = handle.meter.average_bytes
        handle.detach()
    return found


def test_leader_and_center_are_models_that_are_equal_on_all_ranks() -> None:
    found = run(leader_and_center, ranks=3)
    for name in ("leader", "center"):
        trained = [{key for key in found[0][name] if "running" not in key and "batches" not in key}] * 3
        assert all_same({key: result[name][key] for key in trained[0]} for result in found)
    assert any(same(dict(found[0]["leader"]), result["leader local"]) for result in found), "a replica, buffers and all"
    assert not any(same(dict(found[0]["center"]), result["center local"]) for result in found)
    assert all(result["leader bytes"] > 0 and result["center bytes"] == 0 for result in found)
    assert "LeaderSGD(every=4, pull=0.5) has no center" in found[0]["leader error"][1]
    assert "EASGD(every=2) has no leader" in found[0]["center error"][1]


def without_loss() -> list[tuple[str, str]]:
    model = classifier()
    optimizer = sgd(model)
    handle = thinwire.attach(model, "lsgd", optimizer=optimizer)
    first = handle if dist.get_rank() == 0 else None
    return [error_of(lambda: train(model, optimizer, range(20), handle=first))]


def test_a_missing_loss_on_one_rank_is_an_error_on_all_ranks() -> None:
    (((kind, text),), *others) = reversed(run(without_loss, ranks=2))
    assert kind == "ValueError"
    assert text == "LeaderSGD() needs the loss: call handle.report_loss(loss) before each optimizer.step()"
    assert all("needs the loss" in text for ((_, text),) in others)


def train_with_unused_loss() -> bool:
    model = classifier()
    optimizer = sgd(model)
    train(model, optimizer, range(2), handle=thinwire.attach(model, "topk", optimizer=optimizer))
    return True


def test_report_loss_is_accepted_by_methods_that_do_not_need_it() -> None:
    assert all(run(train_with_unused_loss, ranks=2))


def batchnorm() -> list[Any]:
    model = normed()
    optimizer = sgd(model)
    handle = thinwire.attach(model, "LocalSGD(Identity(), every=2)", optimizer=optimizer)
    train(model, optimizer, range(3))
    average = handle.average()
    average.eval()
    inputs = torch.cat([batch(step, rank=7)[0] for step in range(4)])
    handle.refresh_batchnorm(DataLoader(TensorDataset(inputs, torch.zeros(len(inputs))), batch_size=32), average)
    with torch.no_grad():
        expected = average[0](inputs)
    before = model[1].running_mean.clone()
    handle.refresh_batchnorm([inputs])
    return [
        average[1].running_mean,
        expected.view(4, 32, -1).mean(1).mean(0),
        average[1].running_var,
        expected.view(4, 32, -1).var(1).mean(0),
        not average.training and model.training and average[1].momentum == 0.1,
        not torch.equal(before, model[1].running_mean),
        (error_of(lambda: handle.refresh_batchnorm([])), bool(model[1].running_mean.abs().sum() > 0)),
        same(parameters(average), parameters(handle.average())),
    ]


def test_refresh_batchnorm_estimates_the_mean_over_the_batches() -> None:
    for mean, expected_mean, var, expected_var, modes, own, empty, untouched in run(batchnorm, ranks=2):
        torch.testing.assert_close(mean, expected_mean)
        torch.testing.assert_close(var, expected_var)
        assert modes
        assert own
        assert empty[0][1] == "there is no batch to estimate batch norm statistics from: the loader is empty"
        assert empty[1], "an empty loader leaves the statistics as they were"
        assert untouched


def errors() -> list[tuple[str, str]]:
    model = classifier()
    return [
        error_of(lambda: thinwire.attach(DistributedDataParallel(model), "local")),
        error_of(
            lambda: thinwire.attach(model, "Hierarchical(Identity(), Identity(), GroupsOf(3))", optimizer=sgd(model))
        ),
        error_of(lambda: thinwire.attach(model, "diloco", optimizer=sgd(model), on_peer_loss="continue")),
    ]


def test_arguments_that_do_not_work_together_are_an_error() -> None:
    for ddp, groups, peer_loss in run(errors, ranks=2):
        assert "does not average gradients as DDP does: attach the plain module instead" in ddp[1]
        assert "2 ranks cannot be divided into GroupsOf(3): 2 would be left over" in groups[1]
        assert "needs all ranks" in peer_loss[1]


def nonfinite_gradient(method: str) -> tuple[str, str]:
    model = classifier()
    optimizer = sgd(model)
    thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(1))

    def step() -> None:
        for number in range(1, 4):
            optimizer.zero_grad()
            loss_of(model, number).backward()
            if dist.get_rank() == 1:
                model[2].weight.grad[0, 0] = torch.inf
            optimizer.step()

    return error_of(step)


@pytest.mark.parametrize(
    "method",
    [
        "LocalSGD(Identity(), every=3)",
        "LocalSGD(Identity(), every=3, after=5)",
        "Hierarchical(Identity(), LocalSGD(Identity()))",
    ],
)
def test_a_nonfinite_gradient_stops_all_ranks_with_the_reason(method: str) -> None:
    for kind, text in run(nonfinite_gradient, method, ranks=2):
        assert kind in ("NonFiniteError", "PeerLostError"), text
        assert "NaN or infinity in the gradient of" in text
        assert "2.weight" in text
