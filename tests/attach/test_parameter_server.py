"""A rank that only serves: it has no examples, and steps with the others."""

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
from .training import CLASSES, INPUTS, all_same, batch, classifier, parameters, refusal, same, sgd

STEPS = 6
MIXED = "Choose(When(Server(Sign(), Sign(), dedicated=True), min_dim=2), otherwise=Server(Sign(), Sign()))"
APART = "ErrorFeedback(Server(Quantize(8), Quantize(8), dedicated=True))"


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, CLASSES))


def train(net: nn.Module, optimizer: SGD, steps: range, worker: int | None) -> None:
    """A user's loop: without backward on the rank that serves."""
    for step in steps:
        optimizer.zero_grad()
        if worker is not None:
            x, y = batch(step, worker)
            cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def trained(method: str, at: int | None) -> dict[str, Any]:
    net = model()
    optimizer = sgd(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few ranks may say more through a server than without
        handle = thinwire.attach(net, method, optimizer=optimizer)
        rank = dist.get_rank()
        assert handle.serves == (rank == at)
        worker = None if handle.serves else rank - (at is not None and rank > at)
        train(net, optimizer, range(STEPS), worker)
        counted = copy.deepcopy(handle.meter)
        mean = handle.average()
    handle.detach()
    return {
        "parameters": parameters(net),
        "buffers": dict(net.named_buffers()),
        "mean": {name: x for name, x in mean.state_dict().items() if x.is_floating_point()},
        "sent": dict(counted.sent),
        "link": counted.link_bytes,
    }


@pytest.mark.parametrize("at", [0, 2])
def test_three_train_as_if_there_were_no_fourth(at: int) -> None:
    expected = run(trained, "dense", None, ranks=3)
    found = run(trained, f"Server(Identity(), Identity(), rank={at}, dedicated=True)", at, ranks=4)
    assert all_same(result["parameters"] for result in found)
    assert same(found[0]["parameters"], expected[0]["parameters"])
    # Statistics of batch norms are the workers' own, and the mean over all is over those who have some.
    workers = [result for rank, result in enumerate(found) if rank != at]
    assert not any(same(result["buffers"], found[at]["buffers"]) for result in workers)
    for here, there in zip(workers, expected, strict=True):
        assert same(here["buffers"], there["buffers"])
    assert all_same(result["mean"] for result in found)
    assert same(found[0]["mean"], expected[0]["mean"])


@pytest.mark.parametrize("method", ["ErrorFeedback(Server(TopK(0.1), TopK(0.1), dedicated=True))", APART])
def test_the_server_carries_what_all_workers_do(method: str) -> None:
    server, *workers = run(trained, method, 0, ranks=4)
    assert all_same(result["parameters"] for result in (server, *workers))
    assert len({worker["link"] for worker in workers}) == 1
    assert all(set(worker["sent"]) == {0} for worker in workers), "nothing goes from worker to worker"
    assert server["link"] == 3 * workers[0]["link"]


def trained_with_gradients_where_there_should_be_none() -> dict[str, Any]:
    net = model()
    optimizer = sgd(net)
    handle = thinwire.attach(net, APART, optimizer=optimizer)
    for step in range(2):
        train(net, optimizer, range(step, step + 1), None if handle.serves else dist.get_rank())
        for p in net.parameters() if handle.serves else ():
            p.grad = torch.full_like(p, torch.inf)
    optimizer.step()
    return parameters(net)


def test_whatever_gradients_the_server_has_they_count_for_nothing() -> None:
    results = run(trained_with_gradients_where_there_should_be_none, ranks=3)
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
    straight = parameters(net)
    for there, what in zip((net, optimizer, handle), saved, strict=True):
        there.load_state_dict(what)  # type: ignore[attr-defined]
    train(net, optimizer, range(3, STEPS), worker)
    return straight, parameters(net)


def test_a_checkpoint_goes_on_to_the_bit_with_its_server() -> None:
    for straight, again in run(resumed, APART, ranks=3):
        assert same(straight, again)


def refused() -> list[tuple[str, str]]:
    net = classifier()
    optimizer = sgd(net)
    local = f"LocalSGD({APART})"
    return [
        refusal(lambda: thinwire.attach(DistributedDataParallel(classifier()), APART)),
        refusal(lambda: thinwire.attach(net, local, optimizer=optimizer)),
        refusal(lambda: thinwire.attach(net, "Server(Sign(), Sign(), rank=7, dedicated=True)", optimizer=optimizer)),
        refusal(lambda: thinwire.attach(net, MIXED, optimizer=optimizer)),
    ]


def refused_alone() -> tuple[str, str]:
    net = classifier()
    return refusal(lambda: thinwire.attach(net, APART, optimizer=sgd(net)))


def test_where_nobody_can_serve_apart_it_is_said() -> None:
    for of_ddp, of_local_steps, elsewhere, mixed in run(refused, ranks=2):
        assert of_ddp[0] == of_local_steps[0] == elsewhere[0] == "ValueError"
        assert "has a rank without gradients" in of_ddp[1]
        assert "needs a method that averages gradients in each step" in of_local_steps[1]
        assert "but there are only 2 ranks" in elsewhere[1]
        assert "rank 0 cannot both train and be a dedicated server" in mixed[1]
    ((kind, text),) = run(refused_alone, ranks=1)
    assert kind == "ValueError"
    assert "needs ranks that train besides its dedicated servers" in text
