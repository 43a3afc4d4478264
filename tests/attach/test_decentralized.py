"""Decentralized methods on real ranks: equal to a simulation to the bit, resumed to the bit, and averaged."""

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer

import thinwire
from thinwire import extend, inspect, strategy_of
from thinwire.simulate import replica_of

from ..contracts.table import TOPOLOGIES
from ..reference_run import ReferenceRun
from .processes import run
from .training import (
    CLASSES,
    DECENTRALIZED,
    INPUTS,
    all_same,
    classifier,
    error_of,
    held_out_loss,
    loss_of,
    parameters,
    same,
    sgd,
    train,
)

STEPS = 6
MORE = (
    "Gossip(Identity(), Torus())",
    "PushSum(Cast('float16'), Exponential(2), overlap=2)",
    "Gossip(ErrorFeedback(Sign()), rate=0.1)",
)


def normed() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(INPUTS, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, CLASSES))


def optimizer_of(kind: str, model: nn.Module) -> Optimizer:
    if kind == "adam":
        return Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    return SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def counts(meter: inspect.Meter) -> dict[str, Any]:
    numbers = {name: value for name, value in meter.as_dict(prefix="").items() if not name.endswith("_seconds")}
    return numbers | meter.itemized()


def trained(method: str, kind: str = "sgd") -> dict[str, Any]:
    model = normed()
    optimizer = optimizer_of(kind, model)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(STEPS))
    average = handle.average()
    found = {
        "parameters": parameters(model),
        "buffers": {name: b.clone() for name, b in model.named_buffers()},
        "average": {name: x.clone() for name, x in average.state_dict().items()},
        "counts": counts(handle.meter),
        "ranks": handle.ranks,
    }
    handle.detach()
    return found


def run_reference(
    strategy: extend.Strategy, models: list[nn.Module], optimizers: list[Optimizer], steps: int
) -> ReferenceRun:
    replicas = [replica_of(model, rank=rank, size=len(models)) for rank, model in enumerate(models)]
    reference = ReferenceRun(strategy, replicas)
    for step in range(steps):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(model, step, rank).backward()
        reference.before_update()
        for optimizer in optimizers:
            optimizer.step()
        reference.after_update()
    return reference


def simulated(method: str, ranks: int, kind: str = "sgd") -> tuple[list[dict[str, Tensor]], ReferenceRun]:
    models = [normed() for _ in range(ranks)]
    reference = run_reference(strategy_of(method), models, [optimizer_of(kind, model) for model in models], STEPS)
    reference.consensus([dict(model.named_buffers()) for model in models])
    return [parameters(model) for model in models], reference


@pytest.mark.parametrize(("method", "ranks"), [(method, 4) for method in (*DECENTRALIZED, *MORE)] + [("osgp", 2)])
def test_real_ranks_equal_simulated_ranks_in_bits_and_bytes(method: str, ranks: int) -> None:
    real, (expected, reference) = run(trained, method, ranks=ranks), simulated(method, ranks)
    for rank in range(ranks):
        assert same(real[rank]["parameters"], expected[rank])
        assert real[rank]["counts"] == counts(reference.meters[rank])
    if ranks > 2:  # with two ranks, some methods compute the exact mean in every step
        assert not all_same(result["parameters"] for result in real), "replicas of decentralized methods differ"


@pytest.mark.parametrize("method", ["powergossip", "osgp"])
def test_optimizer_states_stay_local(method: str) -> None:
    real, (expected, _) = run(trained, method, "adam", ranks=3), simulated(method, 3, "adam")
    assert all(same(found["parameters"], p) for found, p in zip(real, expected, strict=True))


@pytest.mark.parametrize("method", ["choco", "powergossip", "osgp"])
def test_average_is_the_mean_of_parameters_and_buffers(method: str) -> None:
    real = run(trained, method, ranks=4)
    assert all_same(found["average"] for found in real)
    for name, mean in real[0]["average"].items():
        values = [(found["parameters"] | found["buffers"])[name] for found in real]
        if mean.is_floating_point():
            # average() lands messages in flight first, so the parameters include them.
            torch.testing.assert_close(mean, torch.stack(values).mean(0), rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(mean, values[0])
    assert len({tuple(found["buffers"]["1.running_mean"].tolist()) for found in real}) == 4, "statistics stay local"
    assert all(0 < found["counts"]["consensus"] < 1 for found in real)
    assert all(found["counts"]["average_bytes"] > 0 for found in real)


def missed_average() -> tuple[bool, list[str]]:
    model = classifier()
    handle = thinwire.attach(model, "dpsgd", optimizer=sgd(model))
    handle._session.exchanges.behind = 1  # as after a failure that the others noticed an exchange later
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        average = handle.average()
    return same(parameters(average), parameters(model)), [str(warning.message) for warning in caught]


def test_an_average_without_the_other_ranks_warns() -> None:
    ((local, texts),) = run(missed_average, ranks=1)
    assert local
    assert texts == ["the other ranks computed their average before ranks failed: this one is of this rank alone"]


def with_average(method: str, average: bool) -> dict[str, Tensor]:
    model = classifier()
    optimizer = sgd(model)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(3))
    if average:
        handle.average()
    train(model, optimizer, range(3, 6))
    handle.detach()
    return parameters(model)


@pytest.mark.parametrize("method", ["choco", "sgp"])
def test_average_does_not_affect_training(method: str) -> None:
    with_call, without_call = (run(with_average, method, average, ranks=3) for average in (True, False))
    assert same(with_call, without_call)


def first_half(method: str, folder: Path) -> None:
    model = normed()
    optimizer = sgd(model)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(3))
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "thinwire": handle.state_dict()}
    torch.save(saved, folder / f"rank{dist.get_rank()}.pt")
    handle.detach()


def second_half(method: str, folder: Path, model_first: bool) -> Any:
    saved = torch.load(folder / f"rank{dist.get_rank()}.pt", weights_only=True)
    model = normed()
    optimizer = sgd(model)
    if model_first:
        model.load_state_dict(saved["model"])
    handle = thinwire.attach(model, method, optimizer=optimizer)
    if not model_first:
        model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    if model_first:
        return error_of(lambda: handle.load_state_dict(saved["thinwire"]))
    handle.load_state_dict(saved["thinwire"])
    train(model, optimizer, range(3, 6))
    handle.detach()  # waits for a message in flight, and applies it
    return parameters(model), counts(handle.meter)


def uninterrupted_run(method: str) -> Any:
    model = normed()
    optimizer = sgd(model)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(6))
    handle.detach()
    return parameters(model), counts(handle.meter)


@pytest.mark.parametrize("method", DECENTRALIZED)
def test_training_resumes_to_the_bit(method: str, tmp_path: Path) -> None:
    uninterrupted = run(uninterrupted_run, method, ranks=3)
    run(first_half, method, tmp_path, ranks=3)
    assert same(run(second_half, method, tmp_path, False, ranks=3), uninterrupted)


def test_loading_the_model_before_attaching_is_an_error(tmp_path: Path) -> None:
    run(first_half, "dpsgd", tmp_path, ranks=2)
    for rank, error in enumerate(run(second_half, "dpsgd", tmp_path, True, ranks=2)):
        if rank:  # rank 0 keeps its parameters: they are copied to all
            kind, text = error
            assert kind == "ValueError"
            assert "afterwards, load each rank's own model" in text


def loaded_twice(method: str) -> tuple[Any, Any]:
    model = normed()
    optimizer = sgd(model)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(3))
    saved = deepcopy([handle.state_dict(), model.state_dict(), optimizer.state_dict()])
    found = []
    for _ in range(2):
        train(model, optimizer, range(3, 6))
        found.append((parameters(model), counts(handle.meter)))
        for part, state in zip((model, optimizer, handle), (saved[1], saved[2], saved[0]), strict=True):
            part.load_state_dict(state)
    handle.detach()
    return found[0], found[1]


@pytest.mark.parametrize("method", ["osgp", "choco"])
def test_loading_an_earlier_state_drops_messages_in_flight(method: str) -> None:
    for first, again in run(loaded_twice, method, ranks=2):
        assert same(first, again)


def learned(method: str) -> tuple[float, float, float]:
    model = classifier()
    optimizer = SGD(model.parameters(), lr=0.5)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    before = held_out_loss(model)
    train(model, optimizer, range(60))
    return before, held_out_loss(model), held_out_loss(handle.average())


@pytest.mark.parametrize("method", ["choco", "powergossip", "osgp"])
def test_replicas_and_their_average_learn(method: str) -> None:
    for before, own, average in run(learned, method, ranks=4):
        assert average < 0.6 * before
        assert own < 0.75 * before


def with_nonfinite_gradient(method: str, on_nonfinite: str) -> tuple[Any, int]:
    model = classifier()
    optimizer = sgd(model)
    handle = thinwire.attach(model, method, optimizer=optimizer, on_nonfinite=on_nonfinite)
    train(model, optimizer, range(2))

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, 2).backward()
        if dist.get_rank() == 1:
            model[2].weight.grad[0, 0] = torch.inf
        optimizer.step()
        train(model, optimizer, range(3, 6))

    error = error_of(step) if on_nonfinite == "raise" else step()
    return error, handle.meter.skipped


@pytest.mark.parametrize("method", ["powergossip", "osgp"])
def test_a_nonfinite_gradient_stops_all_ranks_with_the_reason(method: str) -> None:
    for rank, ((kind, text), _) in enumerate(run(with_nonfinite_gradient, method, "raise", ranks=3)):
        assert kind == ("NonFiniteError" if rank == 1 else "PeerLostError"), text
        assert "NaN or infinity in the gradient of 2.weight" in text
        if rank != 1:
            assert "rank 1 has stopped" in text


def with_nonfinite_gradient_twice() -> list[tuple[str, str]]:
    model = classifier()
    optimizer = sgd(model)
    thinwire.attach(model, "dpsgd", optimizer=optimizer)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, 0).backward()
        if dist.get_rank() == 1:
            model[2].weight.grad.fill_(torch.nan)
        optimizer.step()

    return [error_of(step) for _ in range(2)]


def test_after_a_nonfinite_gradient_every_later_step_raises() -> None:
    for _, again in run(with_nonfinite_gradient_twice, ranks=2):
        assert again == ("RuntimeError", "the ranks are out of step since an earlier error; restart")


def second_attach_error() -> tuple[str, str]:
    model = classifier()
    optimizer = sgd(model)
    thinwire.attach(model, "dpsgd", optimizer=optimizer, peer_timeout=5.0).detach()
    method = "nonsense" if dist.get_rank() == 1 else "dpsgd"
    return error_of(lambda: thinwire.attach(model, method, optimizer=optimizer, peer_timeout=5.0))


def test_a_wrong_method_on_one_rank_with_a_reused_group_is_an_error_on_all_ranks() -> None:
    for kind, text in run(second_attach_error, ranks=2):
        assert kind == "ValueError"
        assert "unknown method 'nonsense'" in text


@pytest.mark.parametrize("method", ["dpsgd", "osgp"])
def test_a_nonfinite_gradient_is_skipped_on_its_rank_only(method: str) -> None:
    skipped = [count for _, count in run(with_nonfinite_gradient, method, "skip", ranks=3)]
    assert skipped == [0, 1, 0]


def attach_error(case: str) -> Any:
    model = classifier()
    optimizer = sgd(model)

    def attach(method: Any, module: nn.Module = model, **settings: Any) -> None:
        thinwire.attach(module, method, **settings)

    attempts = {
        "ddp": lambda: attach("dpsgd", DistributedDataParallel(classifier())),
        "cube": lambda: attach("Gossip(Identity(), Hypercube())", optimizer=optimizer),
        "one way": lambda: attach("EdgeGossip(PowerIteration(1), Exponential())", optimizer=optimizer),
        "varies": lambda: attach("Gossip(Difference(TopK(0.1)), Exponential())", optimizer=optimizer),
        "drifts": lambda: attach(
            thinwire.Gossip(thinwire.Identity(), thinwire.Edges(((0, 1), (1, 2), (2, 0), (0, 2)), directed=True)),
            optimizer=optimizer,
        ),
        "continue": lambda: attach("topk", optimizer=optimizer, on_peer_loss="continue"),
        "choice": lambda: attach("dpsgd", optimizer=optimizer, on_peer_loss="panic"),
        "timeout": lambda: attach("dpsgd", optimizer=optimizer, peer_timeout=0),
    }
    return error_of(attempts[case])


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("ddp", "attach the plain module"),
        ("cube", "2, 4, 8, ... ranks, not 3"),
        ("one way", "one-way or changing edges"),
        ("varies", "neighbors in Exponential() change"),
        ("drifts", "PushSum(...) works on such graphs"),
        ("continue", "needs all ranks"),
        ("choice", "'raise', 'continue', not 'panic'"),
        ("timeout", "above 0, not 0"),
    ],
)
def test_invalid_arguments_are_the_same_error_on_every_rank(case: str, words: str) -> None:
    for kind, text in run(attach_error, case, ranks=3):
        assert kind == "ValueError"
        assert words in text


def over_all_graphs() -> list[dict[str, Tensor]]:
    found = []
    for topology in TOPOLOGIES:
        model = classifier()
        optimizer = sgd(model)
        handle = thinwire.attach(model, thinwire.PushSum(topology=topology), optimizer=optimizer)
        train(model, optimizer, range(3))
        handle.detach()
        found.append(parameters(model))
    return found


def test_no_rank_waits_forever_on_any_graph() -> None:
    real = run(over_all_graphs, ranks=4)
    for i, topology in enumerate(TOPOLOGIES):
        models = [classifier() for _ in range(4)]
        run_reference(thinwire.PushSum(topology=topology), models, [sgd(model) for model in models], 3)
        assert all(same(real[rank][i], parameters(model)) for rank, model in enumerate(models)), topology


def diverged(method: str) -> tuple[str, str]:
    model = classifier()
    optimizer = sgd(model)
    thinwire.attach(model, method, optimizer=optimizer)

    def step() -> None:
        train(model, optimizer, range(2))
        if dist.get_rank() == 2:
            with torch.no_grad():
                model[0].weight[0, 0] = torch.nan
        for _ in range(6):  # without backward, whose gradients would be NaN, too: this checks the messages
            optimizer.zero_grad(set_to_none=False)
            optimizer.step()

    return error_of(step)


@pytest.mark.parametrize("method", ["dpsgd", "sgp"])
def test_nonfinite_parameters_stop_all_ranks_with_the_reason(method: str) -> None:
    for kind, text in run(diverged, method, ranks=5):
        assert kind in ("NonFiniteError", "PeerLostError"), text
        assert "NaN or infinity in the parameters of 0.weight" in text, text
