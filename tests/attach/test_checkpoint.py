"""A run that is resumed from a checkpoint equals the uninterrupted run to the bit."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import KINDS, classifier, error_of, parameters, same, sgd, totals, train

STEPS, SAVED_AT = 10, 5


def uninterrupted_run(method: str) -> tuple[dict, dict]:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, method)
    train(ddp, sgd(ddp), range(STEPS))
    return parameters(ddp), totals(handle) | {"layers": handle.layers()}


def first_half(method: str, folder: Path) -> None:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, method)
    optimizer = sgd(ddp)
    train(ddp, optimizer, range(SAVED_AT))
    saved = {"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict(), "thinwire": handle.state_dict()}
    torch.save(saved, folder / f"rank{dist.get_rank()}.pt")


def second_half(method: str, folder: Path, with_thinwire: bool) -> tuple[dict, dict]:
    saved = torch.load(folder / f"rank{dist.get_rank()}.pt", weights_only=True)
    model = classifier(seed=1)  # other values, which the checkpoint replaces
    model.load_state_dict(saved["model"])
    ddp = DistributedDataParallel(model)
    handle = thinwire.attach(ddp, method)
    optimizer = sgd(ddp)
    optimizer.load_state_dict(saved["optimizer"])
    if with_thinwire:
        handle.load_state_dict(saved["thinwire"])
    train(ddp, optimizer, range(SAVED_AT, STEPS))
    return parameters(ddp), totals(handle) | {"layers": handle.layers()}


def check_resumed(method: str, folder: Path, ranks: int) -> None:
    uninterrupted = run(uninterrupted_run, method, ranks=ranks)
    run(first_half, method, folder, ranks=ranks)
    resumed = run(second_half, method, folder, True, ranks=ranks)
    for (p, counts), (resumed_p, resumed_counts) in zip(uninterrupted, resumed, strict=True):
        assert same(resumed_p, p)
        assert resumed_counts == counts
        assert counts["steps"] == STEPS


@pytest.mark.parametrize("method", [*KINDS, "topk8", "dgc", "co3"])
def test_two_ranks_resume_to_the_bit(method: str, tmp_path: Path) -> None:
    check_resumed(method, tmp_path, ranks=2)


@pytest.mark.parametrize("method", ["int8", "topk", "powersgd-half"])
def test_four_ranks_resume_to_the_bit(method: str, tmp_path: Path) -> None:
    check_resumed(method, tmp_path, ranks=4)


def test_without_thinwires_state_a_resumed_run_differs(tmp_path: Path) -> None:
    uninterrupted = run(uninterrupted_run, "topk")
    run(first_half, "topk", tmp_path)
    for (p, _), (without_state, _) in zip(uninterrupted, run(second_half, "topk", tmp_path, False), strict=True):
        assert not same(without_state, p)


def load_into(method: str, change: str, folder: Path) -> dict:
    """Try to load a checkpoint that does not fit, on every rank, and train on."""
    rank = dist.get_rank()
    file = (1 - rank) if change == "rank" else rank % 2
    saved = torch.load(folder / f"rank{file}.pt", weights_only=True)["thinwire"]
    if change == "lacks":
        del saved["state"]["2.weight"]
    if change == "renamed":
        saved["state"]["9.weight"] = saved["state"].pop("2.weight")
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, method)
    optimizer = sgd(ddp)
    train(ddp, optimizer, range(2))
    before = handle.state_dict()
    error = error_of(lambda: handle.load_state_dict(saved))
    unchanged = same(handle.state_dict(), before)
    train(ddp, optimizer, range(2, 4))
    return {"error": error, "unchanged": unchanged, "parameters": parameters(ddp)}


@pytest.mark.parametrize(
    ("change", "method", "ranks", "words"),
    [
        ("rank", "topk", 2, ("another rank", "one file per rank")),
        ("ranks", "topk", 4, ("number of ranks", "2 in the checkpoint, 4 here")),
        ("method", "powersgd", 2, ("another method", "TopK(0.01)", "PowerSGD(4)")),
        ("lacks", "topk", 2, ("2.weight",)),
        ("renamed", "topk", 2, ("2.weight", "9.weight")),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_an_error_and_changes_nothing(
    change: str, method: str, ranks: int, words: tuple[str, ...], tmp_path: Path
) -> None:
    run(first_half, "topk", tmp_path)
    results = run(load_into, method, change, tmp_path, ranks=ranks)
    for result in results:
        kind, text = result["error"]
        assert kind == "ValueError"
        assert all(word in text for word in words), text
        assert result["unchanged"]
        assert same(result["parameters"], results[0]["parameters"])


def later_state(folder: Path) -> tuple[bool, bool]:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "powersgd")
    optimizer = sgd(ddp)
    train(ddp, optimizer, range(1))
    saved = handle.state_dict()
    kept = torch.load(_written(saved, folder), weights_only=True)
    train(ddp, optimizer, range(1, 3))
    return same(saved, kept), same(handle.state_dict(), kept)


def _written(saved: dict, folder: Path) -> Path:
    path = folder / f"rank{dist.get_rank()}.pt"
    torch.save(saved, path)
    return path


def test_a_state_dict_is_a_copy_that_training_does_not_change(tmp_path: Path) -> None:
    for unchanged, equal_to_later_state in run(later_state, tmp_path):
        assert unchanged
        assert not equal_to_later_state
