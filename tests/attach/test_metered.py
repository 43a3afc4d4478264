"""The meter counts the bytes that are really sent, and a method that saves none warns."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import thinwire
from thinwire import simulate
from thinwire.methods import strategy_of

from .processes import run
from .training import BY_RANKS, NAMES, TINY_BUCKETS, batch, classifier, gradients, loss_of, same, sgd, train

STEPS = 3
COUNTS = ("rounds", "payload_bytes", "link_bytes", "payload_by_unit")


def metered(method: str, bucket_cap_mb: float | None) -> dict:
    """A few steps at a learning rate of 0, so that the simulation computes the same gradients."""
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=bucket_cap_mb)
    handle = thinwire.attach(ddp, method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a server may save nothing
        train(ddp, SGD(ddp.parameters(), lr=0.0), range(STEPS))
    return {"counts": {name: getattr(handle.meter, name) for name in COUNTS}, "gradients": gradients(ddp)}


def simulated(method: str, ranks: int) -> list[dict]:
    transport, strategy = simulate.Simulated(ranks), strategy_of(method)
    models = [classifier() for _ in range(ranks)]
    replicas = [simulate.replica_of(model, rank=rank, size=ranks) for rank, model in enumerate(models)]
    states = [strategy.init(replica) for replica in replicas]
    for step in range(STEPS):
        for rank, model in enumerate(models):
            model.zero_grad()
            loss_of(model, step, rank).backward()
        exchanges = [
            strategy.exchange(strategy.units(replica), {n: p.grad for n, p in model.named_parameters()}, ranks, state)
            for replica, model, state in zip(replicas, models, states, strict=True)
        ]
        states = [result.state for result in transport.run(exchanges)]
    counts = [{name: getattr(meter, name) for name in COUNTS} for meter in transport.meters]
    return [{"counts": counts[rank], "gradients": gradients(models[rank])} for rank in range(ranks)]


@pytest.mark.parametrize(("method", "ranks"), BY_RANKS)
def test_ddp_sends_the_bytes_of_the_simulation(method: str, ranks: int) -> None:
    expected = simulated(method, ranks)
    for result, simulation in zip(run(metered, method, None, ranks=ranks), expected, strict=True):
        assert result["counts"] == simulation["counts"]
        assert sum(result["counts"]["payload_by_unit"].values()) == result["counts"]["payload_bytes"]
        assert same(result["gradients"], simulation["gradients"])
    # Buckets change the number of rounds, not what is sent.
    for result, simulation in zip(run(metered, method, TINY_BUCKETS, ranks=ranks), expected, strict=True):
        assert all(
            result["counts"][name] == simulation["counts"][name] for name in ("payload_bytes", "payload_by_unit")
        )
        assert same(result["gradients"], simulation["gradients"])


def half() -> nn.Sequential:
    return classifier().to(torch.bfloat16)


def warned(method: Any, build: Any, mode: str) -> list[str]:
    model = build()
    optimizer = sgd(model)
    if mode == "ddp":
        model = DistributedDataParallel(model)
        thinwire.attach(model, method)
    else:
        thinwire.attach(model, method, optimizer=optimizer)
    dtype = next(model.parameters()).dtype
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(4):
            optimizer.zero_grad()
            model(batch(step)[0].to(dtype)).square().mean().backward()
            optimizer.step()
    return [str(warning.message) for warning in caught]


def name_of(value: object) -> str:
    """The name or repr, without the address in the repr of a function."""
    return str(getattr(value, "__name__", repr(value)))


@pytest.mark.parametrize("mode", ["ddp", "optimizer"])
@pytest.mark.parametrize(
    ("method", "build", "ranks"),
    [
        # Every entry with its index: more than the entries alone, on any number of ranks.
        (thinwire.Nonzero(), classifier, 2),
        (thinwire.Nonzero(), classifier, 4),
        # A little more than a byte an entry to each of three others is 3.02 bytes; an all-reduce of two is 2 * 3/4 * 2.
        (thinwire.Quantize(8), half, 4),
    ],
    ids=name_of,
)
def test_a_method_that_saves_nothing_warns_once(method: Any, build: Any, ranks: int, mode: str) -> None:
    for texts in run(warned, method, build, mode, ranks=ranks):
        assert len(texts) == 1
        assert repr(method) in texts[0]
        assert f"on {ranks} ranks it saves nothing" in texts[0]


@pytest.mark.parametrize("mode", ["ddp", "optimizer"])
@pytest.mark.parametrize(
    ("method", "build", "ranks"),
    [
        ("dense", classifier, 2),
        ("dense", classifier, 4),
        ("dense", half, 4),
        # As above, with gradients of four bytes: 3.02 of 6 bytes.
        (thinwire.Quantize(8), classifier, 4),
        (thinwire.WarmUp(10, thinwire.Nonzero()), classifier, 4),  # all steps are warm-up
        (thinwire.WarmUp(2, thinwire.ErrorFeedback(thinwire.Sign())), classifier, 4),
    ],
    ids=name_of,
)
def test_a_method_that_saves_bytes_or_is_in_its_warm_up_does_not_warn(
    method: Any, build: Any, ranks: int, mode: str
) -> None:
    for texts in run(warned, method, build, mode, ranks=ranks):
        assert texts == []


def numbers() -> dict:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "topk")
    train(ddp, sgd(ddp), range(2))
    return handle.meter.as_dict()


def test_as_dict_is_flat_numbers_for_a_logger() -> None:
    for counts in run(numbers):
        assert all(name.startswith("thinwire/") for name in counts)
        assert all(type(value) in (int, float) for value in counts.values())
        assert counts["thinwire/steps"] == 2
        assert counts["thinwire/ratio"] == counts["thinwire/dense_bytes"] / counts["thinwire/payload_bytes"] > 10
        assert all(counts[f"thinwire/{part}_seconds"] > 0 for part in ("encode", "exchange", "decode"))


def small() -> nn.Sequential:
    """Vectors, and matrices too small for a low-rank product to be smaller."""
    return nn.Sequential(nn.Linear(20, 4), nn.LayerNorm(4), nn.Linear(4, 10))


def warned_at_attach(method: Any, build: Any) -> list[str]:
    ddp = DistributedDataParallel(build())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thinwire.attach(ddp, method)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("method", "build", "words"),
    [
        ("powersgd", small, ("PowerSGD(4)", "no effect")),
        (thinwire.ErrorFeedback(thinwire.PowerSGD(4)), small, ("PowerSGD(4)", "no effect")),
        (
            thinwire.Choose(thinwire.When(thinwire.TopK(0.1), kinds="conv"), otherwise=thinwire.Sign()),
            classifier,
            ("When(TopK(0.1)", "conv", "matches no parameter"),
        ),
        (
            thinwire.Choose(thinwire.When(thinwire.TopK(0.1), names="head.*"), thinwire.When(thinwire.Sign())),
            classifier,
            ("When(TopK(0.1)", "head.*", "matches no parameter"),
        ),
        ("server:powersgd", small, ("Server(PowerSGD(4)", "no effect")),
        (
            "Server(PowerSGD(4), Quantize(8))",
            classifier,
            ("Quantize(8) has no effect", "answered through their own codec"),
        ),
    ],
    ids=["short name", "reducer", "kind", "name", "through a server", "the server's answers"],
)
def test_a_setting_without_effect_warns_at_attach(method: Any, build: Any, words: tuple[str, ...]) -> None:
    for texts in run(warned_at_attach, method, build):
        assert len(texts) == 1
        assert all(word in texts[0] for word in words), texts[0]


@pytest.mark.parametrize("method", NAMES)
def test_no_short_name_warns_at_attach(method: str) -> None:
    assert run(warned_at_attach, method, classifier) == [[], []]


def test_dense_does_not_warn_that_it_has_no_effect() -> None:
    for method in ("dense", "server:dense"):
        assert run(warned_at_attach, method, small) == [[], []]
