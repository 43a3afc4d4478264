"""AB-training on real ranks: as simulated to the bit, resumed to the bit in every phase, merged and exported."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

import thinwire
from thinwire import load_low_rank, strategy_of
from thinwire.runtime.preparation import prepared

from ..reference_run import ReferenceRun
from .processes import run
from .test_local_updates import attached, counts
from .training import INPUTS, all_same, batch, classifier, held_out_loss, loss_of, parameters, refusal, same, train

STEPS = 13
METHODS = (
    "ABTraining(after=2, every=5, full=2, rebound=2, cutoff=0.3)",
    "ABTraining(after=2, every=5, full=2, rebound=0, cutoff=0.3, sync='with-stale', groups=GroupsOf(1))",
    "ABTraining(after=1, every=4, full=0, cutoff=0.2, sync='full', moments='reset')",
    "ABTraining(ErrorFeedback(TopK(0.5)), after=2, every=5, full=1, cutoff=0.3, sync='only-b', groups=OneGroup())",
)


def normed() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(INPUTS, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 10)
    )


def optimizer_of(kind: str, model: nn.Module) -> Optimizer:
    if kind == "adam":
        return AdamW(model.parameters(), lr=0.01)
    return SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def trained(kind: str) -> list[Any]:
    found = []
    for method in METHODS:
        model = normed()
        optimizer = optimizer_of(kind, model)
        handle = attached(model, method, optimizer)
        train(model, optimizer, range(STEPS))
        found.append((parameters(model), counts(handle.meter)))
        handle.detach()
    return found


def simulated(method: str, ranks: int, kind: str) -> list[Any]:
    models = [normed() for _ in range(ranks)]
    optimizers = [optimizer_of(kind, model) for model in models]
    strategy = strategy_of(method)
    crew = enumerate(zip(models, optimizers, strict=True))
    reference = ReferenceRun(strategy, [prepared(strategy, m, o, rank=r, size=ranks) for r, (m, o) in crew])
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(model, step, rank).backward()
        reference.before_update()
        for optimizer in optimizers:
            optimizer.step()
        reference.after_update()
    return [(parameters(model), counts(meter)) for model, meter in zip(models, reference.meters, strict=True)]


@pytest.mark.parametrize(("ranks", "kind"), [(4, "sgd"), (2, "adam")])
def test_real_ranks_are_simulated_ranks_to_the_bit_and_to_the_byte(ranks: int, kind: str) -> None:
    real = run(trained, kind, ranks=ranks)
    for i, method in enumerate(METHODS):
        expected = simulated(method, ranks, kind)
        for rank in range(ranks):
            assert same(real[rank][i][0], expected[rank][0]), (method, rank)
            assert real[rank][i][1] == expected[rank][1], (method, rank)


AT = (3, 5, 6)  # factored, about to be whole, whole; tests/strategies has all phases


def begun(method: str) -> tuple[nn.Module, Optimizer, thinwire.Handle]:
    model = normed()
    optimizer = optimizer_of("adam", model)
    return model, optimizer, attached(model, method, optimizer)


def straight() -> list[Any]:
    found = []
    for method in METHODS:
        for at in AT:
            model, optimizer, handle = begun(method)
            train(model, optimizer, range(at + 6))
            found.append((parameters(model), counts(handle.meter)))
            handle.detach()
    return found


def first_half(folder: Path) -> None:
    for i, method in enumerate(METHODS):
        for at in AT:
            model, optimizer, handle = begun(method)
            train(model, optimizer, range(at))
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "thinwire": handle.state_dict()}
            torch.save(saved, folder / f"{i}-{at}-{dist.get_rank()}.pt")
            handle.detach()


def second_half(folder: Path) -> list[Any]:
    found = []
    for i, method in enumerate(METHODS):
        for at in AT:
            saved = torch.load(folder / f"{i}-{at}-{dist.get_rank()}.pt", weights_only=True)
            model, optimizer, handle = begun(method)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            handle.load_state_dict(saved["thinwire"])
            train(model, optimizer, range(at, at + 6))
            found.append((parameters(model), counts(handle.meter)))
            handle.detach()
    return found


def test_training_resumes_to_the_bit_in_every_phase(tmp_path: Path) -> None:
    uninterrupted = run(straight, ranks=2)
    run(first_half, tmp_path, ranks=2)
    resumed = run(second_half, tmp_path, ranks=2)
    for here, there in zip(uninterrupted, resumed, strict=True):
        for i, (one, other) in enumerate(zip(here, there, strict=True)):
            assert same(one, other), (METHODS[i // len(AT)], AT[i % len(AT)])


def looked_at(folder: Path) -> list[dict[str, Any]]:
    found = []
    for at in (2, 4, 6):  # factored just now, factored, whole
        model, optimizer, handle = begun("ABTraining(after=2, every=5, full=2, rebound=2, cutoff=0.7)")
        train(model, optimizer, range(at))
        path = folder / f"thin{at}.pt"
        before = parameters(model)
        whole, average, ranks = handle.merge(), handle.average(), handle.export(path)
        dist.barrier()
        thin = load_low_rank(normed(), path)
        x = batch(77, rank=5)[0]
        untouched = same(parameters(model), before)
        for m in (whole, thin, average):
            m.eval()
        with torch.no_grad():
            outputs = [m(x) for m in (whole, thin)]
        found.append(
            {
                "whole": {name: p.clone() for name, p in whole.state_dict().items()},
                "average": {name: p.clone() for name, p in average.state_dict().items()},
                "plain": all(type(part).__module__.startswith("torch.") for m in (whole, thin) for part in m.modules()),
                "ranks": ranks,
                "apart": float((outputs[0] - outputs[1]).abs().max()),
                "smaller": sum(p.numel() for p in thin.parameters()) < sum(p.numel() for p in whole.parameters()),
                "untouched": untouched,
            }
        )
        handle.detach()
        found[-1]["detached"] = type(model[3]) is nn.Linear and len(optimizer.param_groups[0]["params"]) == 8
        train(model, optimizer, range(2))
    return found


def test_models_can_be_had_whole_and_thin(tmp_path: Path) -> None:
    results = run(looked_at, tmp_path, ranks=2)
    for i in range(3):
        here = [found[i] for found in results]
        trained = [name for name in here[0]["whole"] if "running" not in name and "batches" not in name]
        assert all_same({name: found["whole"][name] for name in trained} for found in here)
        assert all_same(found["average"] for found in here)
        assert all(found["plain"] and found["untouched"] and found["detached"] for found in here)
        assert all(found["ranks"] == here[0]["ranks"] for found in here)
    for found in results[0][:2]:  # factored: the thin model is the whole one
        assert found["apart"] < 1e-4
        assert found["ranks"].keys() == {"3"}
        assert found["smaller"]


def refused() -> list[tuple[str, str]]:
    small, model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), normed()
    found = [
        refusal(lambda: thinwire.attach(small, "ab", optimizer=SGD(small.parameters(), lr=0.1))),
        refusal(
            lambda: thinwire.attach(model, "ABTraining(groups=GroupsOf(3))", optimizer=SGD(model.parameters(), lr=0.1))
        ),
    ]
    plain = all(type(part).__module__.startswith("torch.") for part in model.modules())
    for compiled in (False, True):  # which has other names
        again = normed()
        optimizer = SGD(again.parameters(), lr=0.1)
        of = torch.compile(again, backend="eager") if compiled else again
        settings = {"on_nonfinite": "pass"} if not compiled else {}
        told = refusal(lambda of=of, o=optimizer, s=settings: thinwire.attach(of, "ab", optimizer=o, **s).detach())
        found.append(told)
        plain &= type(again[3]) is nn.Linear and len(optimizer.param_groups[0]["params"]) == 8
    dense = classifier()
    handle = thinwire.attach(dense, "dense", optimizer=SGD(dense.parameters(), lr=0.1))
    return [*found, ("plain", str(plain)), refusal(handle.merge)]


def test_whatever_goes_wrong_as_it_is_attached_the_model_is_as_it_was() -> None:
    """Such as that there is no process group."""
    model = normed()
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="init_process_group"):
        thinwire.attach(model, "ab", optimizer=optimizer)
    assert type(model[3]) is nn.Linear
    assert len(optimizer.param_groups[0]["params"]) == 8


def test_what_does_not_go_together_is_refused_and_leaves_the_model_as_it_was() -> None:
    for nothing, groups, passed, compiled, plain, merge in run(refused, ranks=2):
        assert "on_nonfinite='pass' needs gradients that are equal on all ranks" in passed[1]
        assert compiled[0] == "nothing", compiled
        assert "no layer whose weight can be factored" in nothing[1]
        assert "2 ranks cannot be put in GroupsOf(3)" in groups[1]
        assert plain[1] == "True"
        assert "Average() does not factor layers" in merge[1]


def learned() -> tuple[float, float, int]:
    model = classifier()
    optimizer = AdamW(model.parameters(), lr=0.01)
    method = "ABTraining(after=20, every=20, full=5, rebound=3, cutoff=0.2)"
    handle = attached(model, method, optimizer)
    before = held_out_loss(model)
    train(model, optimizer, range(70))
    return before, held_out_loss(handle.merge()), handle.meter.link_bytes


def test_it_learns() -> None:
    for before, after, _ in run(learned, ranks=4):
        assert after < 0.6 * before
