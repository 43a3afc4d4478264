"""torch.compile, inside or outside DDP, changes neither results nor states."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import all_same, classifier, distance, parameters, sgd, train, trained_ddp


def compiled(module: nn.Module) -> nn.Module:
    return torch.compile(module, backend="aot_eager")


def clean(named: dict) -> dict:
    return {name.replace("_orig_mod.", "").replace("module.", ""): value for name, value in named.items()}


def compiled_ddp(method: str, where: str) -> dict:
    torch._dynamo.reset()  # earlier tests have compiled in this process
    if where == "inside":
        ddp = model = DistributedDataParallel(compiled(classifier()))
    elif where == "outside":
        ddp = DistributedDataParallel(classifier())
        model = compiled(ddp)
    handle = thinwire.attach(model, method)
    train(model, sgd(model), range(4))
    saved = handle.state_dict()
    # A checkpoint of a compiled model fits a model that is not compiled.
    thinwire.attach(DistributedDataParallel(classifier()), method).load_state_dict(saved)
    return {
        "keys": sorted(saved["state"]),
        "steps": handle.meter.steps,
        "parameters": clean(parameters(ddp)),
        "eager": trained_ddp(method, 4),
    }


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("method", ["powersgd", "topk"])
def test_a_compiled_ddp_model_trains_like_an_eager_one(method: str, where: str) -> None:
    results = run(compiled_ddp, method, where, timeout=120)
    assert all_same(result["parameters"] for result in results)
    for result in results:
        assert result["steps"] == 4
        assert result["keys"]
        assert not any("_orig_mod" in key for key in result["keys"])
        assert distance(result["parameters"], result["eager"]) < 1e-4


def compiled_plain_module() -> tuple[list[str], dict]:
    torch._dynamo.reset()
    model = compiled(classifier())
    optimizer = sgd(model)
    handle = thinwire.attach(model, "powersgd", optimizer=optimizer)
    train(model, optimizer, range(3))
    return sorted(handle.state_dict()["state"]), clean(parameters(model))


def test_a_compiled_plain_module_keeps_its_parameter_names() -> None:
    results = run(compiled_plain_module, timeout=120)
    assert all_same(p for _, p in results)
    for keys, p in results:
        assert sorted(name for key in keys for name in key.split(",")) == sorted(p)
