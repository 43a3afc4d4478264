"""If ranks attach differently, all of them raise the same error, at once."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import INPUTS, all_same, classifier, error_of, parameters, sgd, train


def attach_ddp(model: nn.Module | None = None, method: Any = "topk", on_nonfinite: str = "raise") -> None:
    thinwire.attach(DistributedDataParallel(model or classifier()), method, on_nonfinite=on_nonfinite)


def attach_plain(model: nn.Module) -> None:
    thinwire.attach(model, "topk", optimizer=sgd(model))


def renamed() -> nn.Module:
    names = ("0", "1", "other", "3", "4")
    return nn.Sequential(OrderedDict(zip(names, classifier(), strict=True)))


def narrower() -> nn.Module:
    layers = classifier()
    layers[2] = nn.Linear(64, 32)
    return layers


def longer() -> nn.Module:
    layers = classifier()
    layers.append(nn.Linear(10, 10))
    return layers


def halved() -> nn.Module:
    layers = classifier()
    layers[2].to(torch.bfloat16)
    return layers


# What every rank but the last does, what the last one does, and words of the error that all raise.
CASES: dict[str, tuple[Callable[[], None], Callable[[], None], tuple[str, ...]]] = {
    "method": (attach_ddp, lambda: attach_ddp(method="powersgd"), ("method", "TopK(0.01)", "PowerSGD(4)")),
    "setting": (
        lambda: attach_ddp(method=thinwire.TopK(0.1)),
        lambda: attach_ddp(method=thinwire.TopK(0.2)),
        ("method", "TopK(0.1)", "TopK(0.2)"),
    ),
    "fusing": (
        lambda: attach_ddp(method=thinwire.DataParallel(thinwire.TopK(0.1))),
        lambda: attach_ddp(method=thinwire.DataParallel(thinwire.TopK(0.1), fuse_below=0)),
        ("fuse_below=0",),
    ),
    "on_nonfinite": (attach_ddp, lambda: attach_ddp(on_nonfinite="skip"), ("on_nonfinite", "raise", "skip")),
    "name in DDP": (attach_ddp, lambda: attach_ddp(renamed()), ("2.weight", "other.weight")),
    "name": (lambda: attach_plain(classifier()), lambda: attach_plain(renamed()), ("2.weight", "other.weight")),
    "shape": (
        lambda: attach_plain(classifier()),
        lambda: attach_plain(narrower()),
        ("2.weight", "(64, 64)", "(32, 64)"),
    ),
    "dtype": (lambda: attach_plain(classifier()), lambda: attach_plain(halved()), ("2.weight", "float32", "bfloat16")),
    "one more": (lambda: attach_plain(classifier()), lambda: attach_plain(longer()), ("5.weight", "nothing more")),
}


def disagree(case: str) -> dict:
    most, last, _ = CASES[case]
    error = error_of(last if dist.get_rank() == dist.get_world_size() - 1 else most)
    # After correcting the mistake, attaching works in the same process.
    ddp = DistributedDataParallel(classifier())
    thinwire.attach(ddp, "powersgd")
    train(ddp, sgd(ddp), range(3))
    return {"error": error, "parameters": parameters(ddp)}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_a_difference_between_ranks_is_the_same_error_on_all_ranks(case: str, ranks: int) -> None:
    results = run(disagree, case, ranks=ranks)
    kind, text = results[0]["error"]
    assert kind == "ValueError"
    assert all(word in text for word in CASES[case][2]), text
    assert "rank 0" in text
    assert f"rank {ranks - 1}" in text
    assert all_same(results)


def agree() -> int:
    """Ranks may differ in the notation of a method and in the values of parameters."""
    model = classifier(seed=dist.get_rank())
    handle = thinwire.attach(model, "topk" if dist.get_rank() else thinwire.parse(TOPK_NOTATION), optimizer=sgd(model))
    return len(handle.state_dict()["state"])


TOPK_NOTATION = "ErrorFeedback(Chain(TopK(0.01), Cast('float16')))"


def test_a_short_name_on_one_rank_and_its_notation_on_another_agree() -> None:
    assert run(agree) == [2, 2]


def many_parameters() -> tuple[str, str]:
    layers = [nn.Linear(INPUTS, INPUTS, bias=False) for _ in range(3000)]
    if dist.get_rank():
        layers[2000].to(torch.float64)
    return error_of(lambda: attach_plain(nn.Sequential(*layers)))


def test_a_difference_in_one_of_thousands_of_parameters_is_found() -> None:
    for kind, text in run(many_parameters):
        assert kind == "ValueError"
        assert "2000.weight" in text
        assert len(text) < 500, "the message shows only the difference"
