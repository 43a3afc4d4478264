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
from .training import INPUTS, all_same, batch, classifier, error_of, held_out_loss, loss_of, parameters, same, train

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
    results = []
    for method in METHODS:
        model = normed()
        optimizer = optimizer_of(kind, model)
        handle = attached(model, method, optimizer)
        train(model, optimizer, range(STEPS))
        results.append((parameters(model), counts(handle.meter)))
        handle.detach()
    return results


def simulated(method: str, ranks: int, kind: str) -> list[Any]:
    models = [normed() for _ in range(ranks)]
    optimizers = [optimizer_of(kind, model) for model in models]
    strategy = strategy_of(method)
    ranked = enumerate(zip(models, optimizers, strict=True))
    reference = ReferenceRun(strategy, [prepared(strategy, m, o, rank=r, size=ranks) for r, (m, o) in ranked])
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
def test_real_ranks_equal_simulated_ranks_in_bits_and_bytes(ranks: int, kind: str) -> None:
    real = run(trained, kind, ranks=ranks)
    for i, method in enumerate(METHODS):
        expected = simulated(method, ranks, kind)
        for rank in range(ranks):
            assert same(real[rank][i][0], expected[rank][0]), (method, rank)
            assert real[rank][i][1] == expected[rank][1], (method, rank)


SAVED_AT = (3, 5, 6)  # factored, before a full-rank step, full-rank; tests/strategies covers all phases


def started(method: str) -> tuple[nn.Module, Optimizer, thinwire.Handle]:
    model = normed()
    optimizer = optimizer_of("adam", model)
    return model, optimizer, attached(model, method, optimizer)


def uninterrupted_run() -> list[Any]:
    found = []
    for method in METHODS:
        for at in SAVED_AT:
            model, optimizer, handle = started(method)
            train(model, optimizer, range(at + 6))
            found.append((parameters(model), counts(handle.meter)))
            handle.detach()
    return found


def first_half(folder: Path) -> None:
    for i, method in enumerate(METHODS):
        for at in SAVED_AT:
            model, optimizer, handle = started(method)
            train(model, optimizer, range(at))
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "thinwire": handle.state_dict()}
            torch.save(saved, folder / f"{i}-{at}-{dist.get_rank()}.pt")
            handle.detach()


def second_half(folder: Path) -> list[Any]:
    found = []
    for i, method in enumerate(METHODS):
        for at in SAVED_AT:
            saved = torch.load(folder / f"{i}-{at}-{dist.get_rank()}.pt", weights_only=True)
            model, optimizer, handle = started(method)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            handle.load_state_dict(saved["thinwire"])
            train(model, optimizer, range(at, at + 6))
            found.append((parameters(model), counts(handle.meter)))
            handle.detach()
    return found


def test_training_resumes_to_the_bit_in_every_phase(tmp_path: Path) -> None:
    uninterrupted = run(uninterrupted_run, ranks=2)
    run(first_half, tmp_path, ranks=2)
    resumed = run(second_half, tmp_path, ranks=2)
    for expected, found in zip(uninterrupted, resumed, strict=True):
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert same(one, other), (METHODS[i // len(SAVED_AT)], SAVED_AT[i % len(SAVED_AT)])


def exported_models(folder: Path) -> list[dict[str, Any]]:
    found = []
    for at in (2, 4, 6):  # just factored, factored, full-rank
        model, optimizer, handle = started("ABTraining(after=2, every=5, full=2, rebound=2, cutoff=0.7)")
        train(model, optimizer, range(at))
        path = folder / f"low_rank{at}.pt"
        before = parameters(model)
        full_rank, average, ranks = handle.merge(), handle.average(), handle.export(path)
        dist.barrier()
        low_rank = load_low_rank(normed(), path)
        x = batch(77, rank=5)[0]
        untouched = same(parameters(model), before)
        for m in (full_rank, low_rank, average):
            m.eval()
        with torch.no_grad():
            outputs = [m(x) for m in (full_rank, low_rank)]
        found.append(
            {
                "full rank": {name: p.clone() for name, p in full_rank.state_dict().items()},
                "average": {name: p.clone() for name, p in average.state_dict().items()},
                "plain": all(
                    type(part).__module__.startswith("torch.") for m in (full_rank, low_rank) for part in m.modules()
                ),
                "ranks": ranks,
                "difference": float((outputs[0] - outputs[1]).abs().max()),
                "smaller": sum(p.numel() for p in low_rank.parameters())
                < sum(p.numel() for p in full_rank.parameters()),
                "untouched": untouched,
            }
        )
        handle.detach()
        found[-1]["merge_detached"] = error_of(handle.merge)
        found[-1]["detached"] = type(model[3]) is nn.Linear and len(optimizer.param_groups[0]["params"]) == 8
        train(model, optimizer, range(2))
    return found


def test_merge_and_export_give_the_same_model_on_all_ranks(tmp_path: Path) -> None:
    results = run(exported_models, tmp_path, ranks=2)
    for i in range(3):
        by_rank = [models[i] for models in results]
        trained = [name for name in by_rank[0]["full rank"] if "running" not in name and "batches" not in name]
        assert all_same({name: found["full rank"][name] for name in trained} for found in by_rank)
        assert all_same(found["average"] for found in by_rank)
        assert all(found["plain"] and found["untouched"] and found["detached"] for found in by_rank)
        assert {found["merge_detached"] for found in by_rank} == {
            ("RuntimeError", "thinwire is detached from this model")
        }
        assert all(found["ranks"] == by_rank[0]["ranks"] for found in by_rank)
    for found in results[0][:2]:  # factored: the low-rank model equals the full-rank one
        assert found["difference"] < 1e-4
        assert found["ranks"].keys() == {"3"}
        assert found["smaller"]


def errors() -> list[tuple[str, str]]:
    small, model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), normed()
    found = [
        error_of(lambda: thinwire.attach(small, "ab", optimizer=SGD(small.parameters(), lr=0.1))),
        error_of(
            lambda: thinwire.attach(model, "ABTraining(groups=GroupsOf(3))", optimizer=SGD(model.parameters(), lr=0.1))
        ),
    ]
    plain = all(type(part).__module__.startswith("torch.") for part in model.modules())
    for compiled in (False, True):  # a compiled model has other parameter names
        again = normed()
        optimizer = SGD(again.parameters(), lr=0.1)
        of = torch.compile(again, backend="eager") if compiled else again
        settings = {"on_nonfinite": "pass"} if not compiled else {}
        error = error_of(lambda of=of, o=optimizer, s=settings: thinwire.attach(of, "ab", optimizer=o, **s).detach())
        found.append(error)
        plain &= type(again[3]) is nn.Linear and len(optimizer.param_groups[0]["params"]) == 8
    dense = classifier()
    handle = thinwire.attach(dense, "dense", optimizer=SGD(dense.parameters(), lr=0.1))
    return [*found, ("plain", str(plain)), error_of(handle.merge)]


def test_attach_without_a_process_group_is_an_error_and_leaves_the_model_unchanged() -> None:
    model = normed()
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="init_process_group"):
        thinwire.attach(model, "ab", optimizer=optimizer)
    assert type(model[3]) is nn.Linear
    assert len(optimizer.param_groups[0]["params"]) == 8


def test_arguments_that_do_not_work_together_are_an_error_and_leave_the_model_unchanged() -> None:
    for no_layer, groups, passed, compiled, plain, merge in run(errors, ranks=2):
        assert "on_nonfinite='pass' needs gradients that are equal on all ranks" in passed[1]
        assert compiled[0] == "nothing", compiled
        assert "no layer whose weight can be factored" in no_layer[1]
        assert "2 ranks cannot be divided into GroupsOf(3)" in groups[1]
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


def test_training_lowers_the_loss() -> None:
    for before, after, _ in run(learned, ranks=4):
        assert after < 0.6 * before
