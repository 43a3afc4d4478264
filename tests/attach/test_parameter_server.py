"""A dedicated parameter server: it has no examples, and steps with the other ranks."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import thinwire

from .processes import run
from .training import CLASSES, INPUTS, all_same, batch, classifier, error_of, parameters, same, sgd

STEPS = 6
MIXED = "Choose(When(Server(Sign(), Sign(), dedicated=True), min_dim=2), otherwise=Server(Sign(), Sign()))"
DEDICATED = "ErrorFeedback(Server(Quantize(8), Quantize(8), dedicated=True))"


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, CLASSES))


def train(net: nn.Module, optimizer: SGD, steps: range, worker: int | None) -> None:
    """A training loop without backward on the dedicated server."""
    for step in steps:
        optimizer.zero_grad()
        if worker is not None:
            x, y = batch(step, worker)
            cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def trained(method: str, server: int | None) -> dict[str, Any]:
    net = model()
    optimizer = sgd(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # with few ranks, a server may save nothing
        handle = thinwire.attach(net, method, optimizer=optimizer)
        rank = dist.get_rank()
        assert handle.serves == (rank == server)
        worker = None if handle.serves else rank - (server is not None and rank > server)
        train(net, optimizer, range(STEPS), worker)
        meter = copy.deepcopy(handle.meter)
        mean = handle.average()
    handle.detach()
    return {
        "parameters": parameters(net),
        "buffers": dict(net.named_buffers()),
        "mean": {name: x for name, x in mean.state_dict().items() if x.is_floating_point()},
        "sent": dict(meter.sent),
        "link": meter.link_bytes,
    }


@pytest.mark.parametrize("server", [0, 2])
def test_three_workers_and_a_server_train_like_three_ranks(server: int) -> None:
    expected = run(trained, "dense", None, ranks=3)
    found = run(trained, f"Server(Identity(), Identity(), rank={server}, dedicated=True)", server, ranks=4)
    assert all_same(result["parameters"] for result in found)
    assert same(found[0]["parameters"], expected[0]["parameters"])
    # Batch norm statistics differ between workers; the average is over ranks that have some, so without the server.
    workers = [result for rank, result in enumerate(found) if rank != server]
    assert not any(same(result["buffers"], found[server]["buffers"]) for result in workers)
    for worker, plain in zip(workers, expected, strict=True):
        assert same(worker["buffers"], plain["buffers"])
    assert all_same(result["mean"] for result in found)
    assert same(found[0]["mean"], expected[0]["mean"])


@pytest.mark.parametrize("method", ["ErrorFeedback(Server(TopK(0.1), TopK(0.1), dedicated=True))", DEDICATED])
def test_the_server_carries_the_bytes_of_all_workers(method: str) -> None:
    server, *workers = run(trained, method, 0, ranks=4)
    assert all_same(result["parameters"] for result in (server, *workers))
    assert len({worker["link"] for worker in workers}) == 1
    assert all(set(worker["sent"]) == {0} for worker in workers), "workers send to the server only"
    assert server["link"] == 3 * workers[0]["link"]


def trained_with_gradients_on_the_server() -> dict[str, Any]:
    net = model()
    optimizer = sgd(net)
    handle = thinwire.attach(net, DEDICATED, optimizer=optimizer)
    for step in range(2):
        train(net, optimizer, range(step, step + 1), None if handle.serves else dist.get_rank())
        for p in net.parameters() if handle.serves else ():
            p.grad = torch.full_like(p, torch.inf)
    optimizer.step()
    return parameters(net)


def test_gradients_on_a_dedicated_server_are_ignored() -> None:
    results = run(trained_with_gradients_on_the_server, ranks=3)
    assert all_same(results)
    assert all(x.isfinite().all() for x in results[0].values())


def resumed(method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    net = model()
    optimizer = sgd(net)
    handle = thinwire.attach(net, method, optimizer=optimizer)
    worker = None if handle.serves else dist.get_rank()
    train(net, optimizer, range(3), worker)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict(), handle.state_dict()))
    train(net, optimizer, range(3, STEPS), worker)
    uninterrupted = parameters(net)
    for part, state in zip((net, optimizer, handle), saved, strict=True):
        part.load_state_dict(state)  # type: ignore[attr-defined]
    train(net, optimizer, range(3, STEPS), worker)
    return uninterrupted, parameters(net)


def test_training_with_a_server_resumes_to_the_bit() -> None:
    for uninterrupted, again in run(resumed, DEDICATED, ranks=3):
        assert same(uninterrupted, again)


def errors() -> list[tuple[str, str]]:
    net = classifier()
    optimizer = sgd(net)
    local = f"LocalSGD({DEDICATED})"
    return [
        error_of(lambda: thinwire.attach(DistributedDataParallel(classifier()), DEDICATED)),
        error_of(lambda: thinwire.attach(net, local, optimizer=optimizer)),
        error_of(lambda: thinwire.attach(net, "Server(Sign(), Sign(), rank=7, dedicated=True)", optimizer=optimizer)),
        error_of(lambda: thinwire.attach(net, MIXED, optimizer=optimizer)),
    ]


def single_rank_error() -> tuple[str, str]:
    net = classifier()
    return error_of(lambda: thinwire.attach(net, DEDICATED, optimizer=sgd(net)))


def test_a_dedicated_server_that_is_not_possible_is_an_error() -> None:
    for ddp, local_steps, missing_rank, mixed in run(errors, ranks=2):
        assert ddp[0] == local_steps[0] == missing_rank[0] == "ValueError"
        assert "has a rank without gradients" in ddp[1]
        assert "needs a method that averages gradients in each step" in local_steps[1]
        assert "but there are only 2 ranks" in missing_rank[1]
        assert "rank 0 cannot both train and be a dedicated server" in mixed[1]
    ((kind, text),) = run(single_rank_error, ranks=1)
    assert kind == "ValueError"
    assert "needs ranks that train besides its dedicated servers" in text
