"""Plain modules: gradients are exchanged in optimizer.step()."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR

import thinwire

from .processes import run
from .test_ddp_options import Branches
from .training import (
    CLASSES,
    INPUTS,
    KINDS,
    all_same,
    classifier,
    error_of,
    gradients,
    held_out_loss,
    loss_of,
    parameters,
    same,
    sgd,
    totals,
    train,
)


def trained(method: str) -> dict:
    model = classifier(seed=dist.get_rank())
    optimizer = sgd(model)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    before = held_out_loss(model)
    train(model, optimizer, range(40))
    return {"losses": (before, held_out_loss(model)), "parameters": parameters(model), "totals": totals(handle)}


@pytest.mark.parametrize("method", KINDS)
def test_a_plain_module_trains_and_keeps_replicas_equal(method: str) -> None:
    results = run(trained, method)
    assert all_same(result["parameters"] for result in results)
    for result in results:
        before, after = result["losses"]
        assert after < 0.9 * before
        assert result["totals"]["steps"] == 40
        assert result["totals"]["dense_bytes"] == 40 * sum(p.nbytes for p in result["parameters"].values())
        if method == "dense":
            # Each step also sends a flag per parameter, whether it has a gradient: one bit each.
            flags = result["totals"]["payload_bytes"] - result["totals"]["dense_bytes"]
            assert 0 < flags <= 40 * (len(result["parameters"]) + 4)
        else:
            assert result["totals"]["payload_bytes"] < 0.7 * result["totals"]["dense_bytes"]


@pytest.mark.parametrize("method", ["dense", "int8", "topk", "powersgd"])
def test_a_plain_module_trains_on_four_ranks(method: str) -> None:
    results = run(trained, method, ranks=4)
    assert all_same(result["parameters"] for result in results)
    assert results[0]["losses"][1] < 0.9 * results[0]["losses"][0]


def normed() -> nn.Sequential:
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.BatchNorm1d(64), nn.Linear(64, CLASSES))
    model[1].running_mean.fill_(dist.get_rank())
    model[1].num_batches_tracked.fill_(dist.get_rank())
    return model


def attached_states() -> tuple[dict, dict]:
    model = normed()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    thinwire.attach(model, "topk", optimizer=sgd(model))
    return before, dict(model.state_dict())


def test_attach_copies_the_parameters_and_buffers_of_rank_0() -> None:
    results = run(attached_states)
    assert not same(results[0][0], results[1][0])
    assert all_same([results[0][0], *(after for _, after in results)])


def dense_and_ddp() -> tuple[dict, dict]:
    model = classifier(seed=dist.get_rank())
    optimizer = sgd(model)
    thinwire.attach(model, "dense", optimizer=optimizer)
    train(model, optimizer, range(5))
    ddp = DistributedDataParallel(classifier(seed=dist.get_rank()))
    train(ddp, sgd(ddp), range(5))
    return parameters(model), parameters(ddp)


def test_dense_equals_ddp_to_the_bit_on_two_ranks() -> None:
    assert all_same(p for result in run(dense_and_ddp) for p in result)


def test_dense_equals_ddp_up_to_the_order_of_the_sum_on_four_ranks() -> None:
    for dense, plain in run(dense_and_ddp, ranks=4):
        for name, p in plain.items():
            torch.testing.assert_close(dense[name], p)


def unused_and_ddp(weight_decay: float) -> tuple[dict, dict]:
    results = []
    for method in ("dense", None):
        model: Any = Branches()
        if method is None:
            model = DistributedDataParallel(model, find_unused_parameters=True)
        optimizer = SGD(model.parameters(), lr=0.1, weight_decay=weight_decay)
        if method is not None:
            thinwire.attach(model, method, optimizer=optimizer)
        train(model, optimizer, range(4))
        results.append(parameters(model))
    return results[0], results[1]


def test_a_parameter_that_one_rank_does_not_use_is_averaged_as_by_ddp() -> None:
    results = run(unused_and_ddp, 0.0)
    assert all_same(p for result in results for p in result)
    assert not same(results[0][0]["used_by_rank_0.weight"], parameters(Branches())["used_by_rank_0.weight"])


def test_a_parameter_that_no_rank_uses_has_no_weight_decay_as_with_ddp() -> None:
    results = run(unused_and_ddp, 0.5)
    assert all_same(p for result in results for p in result)
    assert same(results[0][0]["unused.weight"], parameters(Branches())["unused.weight"])


@pytest.mark.parametrize("method", ["powersgd", "topk", "int8"])
def test_a_parameter_that_one_rank_does_not_use_is_reduced(method: str) -> None:
    results = run(unused_by_one, method)
    assert all_same(results)
    assert not same(results[0]["used_by_rank_0.weight"], parameters(Branches())["used_by_rank_0.weight"])


def unused_by_one(method: str) -> dict:
    model = Branches()
    optimizer = sgd(model)
    thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(6))
    return parameters(model)


def train_some_layers() -> dict:
    model = classifier(seed=dist.get_rank())
    optimizer = sgd(model[2:])
    handle = thinwire.attach(model, "topk", optimizer=optimizer)
    start = parameters(model)
    train(model, optimizer, range(3))
    model.zero_grad()
    loss_of(model, 3).backward()
    local = gradients(model)["0.weight"]
    optimizer.step()
    kept = same(gradients(model)["0.weight"], local)
    keys = handle.state_dict()["state"].keys()
    return {"start": start, "end": parameters(model), "keys": sorted(",".join(keys).split(",")), "kept": kept}


def test_an_optimizer_of_some_layers_exchanges_only_these() -> None:
    results = run(train_some_layers)
    for result in results:
        assert result["keys"] == ["2.bias", "2.weight", "4.bias", "4.weight"]
        assert result["kept"], "a gradient that the optimizer does not use must not be reduced"
        assert same(result["end"]["0.weight"], result["start"]["0.weight"])
        assert not same(result["end"]["2.weight"], result["start"]["2.weight"])
    assert all_same(result["end"] for result in results)


def train_with_a_group_added_later() -> tuple[tuple[str, str], dict]:
    model = classifier(seed=dist.get_rank())
    optimizer = sgd(model[2:])
    thinwire.attach(model, "topk", optimizer=optimizer)
    train(model, optimizer, range(2))
    error = error_of(lambda: optimizer.add_param_group({"params": model[0].parameters()}))
    if error[0] == "nothing":
        error = error_of(lambda: train(model, optimizer, range(2, 4)))
    return error, parameters(model)


def test_a_parameter_added_to_the_optimizer_later_is_exchanged_or_an_error() -> None:
    results = run(train_with_a_group_added_later)
    assert all_same(p for _, p in results)
    for (kind, text), _ in results:
        assert kind == "nothing" or (kind == "ValueError" and "0.weight" in text), text


def train_with_two_optimizers() -> dict:
    model = classifier(seed=dist.get_rank())
    first = Adam(model[0].parameters(), lr=0.01)
    second = Adam([{"params": model[2].parameters()}, {"params": model[4].parameters(), "lr": 0.02}], lr=0.01)
    handles = [
        thinwire.attach(model, "topk", optimizer=first),
        thinwire.attach(model, "powersgd", optimizer=second),
    ]
    schedule = StepLR(second, 2)
    for step in range(6):
        model.zero_grad()
        loss_of(model, step).backward()
        first.step()
        second.step()
        schedule.step()
    return {"parameters": parameters(model), "steps": [handle.meter.steps for handle in handles]}


def test_two_optimizers_of_one_model_may_have_different_methods() -> None:
    results = run(train_with_two_optimizers)
    assert all_same(result["parameters"] for result in results)
    assert all(result["steps"] == [6, 6] for result in results)


def step_with_closure() -> dict:
    model = classifier()
    optimizer = sgd(model)
    thinwire.attach(model, "topk", optimizer=optimizer)
    train(model, optimizer, range(2))
    before = parameters(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 2)
        loss.backward()
        return loss

    errors = [error_of(lambda: optimizer.step(closure)), error_of(lambda: optimizer.step(closure=closure))]
    unchanged = same(parameters(model), before)
    train(model, optimizer, range(2, 4))
    return {"errors": errors, "unchanged": unchanged, "parameters": parameters(model)}


def test_a_closure_is_an_error_and_training_can_continue() -> None:
    results = run(step_with_closure)
    for result in results:
        for kind, text in result["errors"]:
            assert kind == "ValueError"
            assert "closure" in text
        assert result["unchanged"]
    assert all_same(result["parameters"] for result in results)


def mistakes() -> dict[str, tuple[str, str]]:
    model, other = classifier(), classifier()
    ddp = DistributedDataParallel(classifier())
    frozen = classifier().requires_grad_(False)
    return {
        "other parameters": error_of(lambda: thinwire.attach(model, "topk", optimizer=sgd(other))),
        "no optimizer": error_of(lambda: thinwire.attach(model, "topk")),
        "ddp and optimizer": error_of(lambda: thinwire.attach(ddp, "topk", optimizer=sgd(ddp))),
        "ddp and group": error_of(lambda: thinwire.attach(ddp, "topk", group=dist.group.WORLD)),
        "nothing to train": error_of(lambda: thinwire.attach(frozen, "topk", optimizer=SGD(frozen.parameters(), 0.1))),
        "unknown method": error_of(lambda: thinwire.attach(ddp, "topkk")),
        "unknown choice": error_of(lambda: thinwire.attach(ddp, "topk", on_nonfinite="ignore")),
        "sparse": error_of(_attach_sparse),
        "complex": error_of(_attach_complex),
    }


def _attach_sparse() -> None:
    model = nn.Embedding(10, 4, sparse=True)
    thinwire.attach(model, "topk", optimizer=SGD(model.parameters(), 0.1))


def _attach_complex() -> None:
    model = nn.Linear(4, 4, dtype=torch.complex64)
    thinwire.attach(model, "topk", optimizer=SGD(model.parameters(), 0.1))


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("other parameters", ("optimizer", "6 parameters", "model")),
        ("no optimizer", ("DistributedDataParallel", "optimizer=")),
        ("ddp and optimizer", ("optimizer=",)),
        ("ddp and group", ("group=",)),
        ("nothing to train", ("no trainable parameters", "requires_grad=True")),
        ("unknown method", ("topkk", "topk")),
        ("unknown choice", ("ignore", "'raise'", "'skip'", "'pass'")),
        ("sparse", ("weight", "sparse")),
        ("complex", ("weight", "complex64")),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(mistake: str, words: tuple[str, ...]) -> None:
    (errors,) = run(mistakes, ranks=1)
    kind, text = errors[mistake]
    assert kind == "ValueError"
    assert all(word in text for word in words), text


def attach_twice() -> tuple[str, str]:
    model = classifier()
    optimizer = sgd(model)
    thinwire.attach(model, "topk", optimizer=optimizer)
    return error_of(lambda: thinwire.attach(model, "topk", optimizer=optimizer))


def test_a_second_attach_to_an_optimizer_is_an_error() -> None:
    for kind, text in run(attach_twice):
        assert kind == "ValueError"
        assert "already" in text
        assert "detach()" in text


def test_without_torch_distributed_the_error_says_how_to_start_it() -> None:
    model = classifier()
    with pytest.raises(RuntimeError, match=r"torchrun.*init_process_group"):
        thinwire.attach(model, "topk", optimizer=sgd(model))


BY_RATE = "ErrorFeedback(TopK(0.1), by_rate=True)"


def with_rates(method: str) -> tuple[object, ...]:
    model = classifier()
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    handle = thinwire.attach(model, method, optimizer=optimizer)
    for step in range(4):
        train(model, optimizer, [step])
        schedule.step()
    plain = parameters(model)
    handle.detach()
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, method)
    problem = error_of(lambda: loss_of(ddp, 0).backward())
    handle.detach()
    ddp = DistributedDataParallel(classifier())
    optimizer = sgd(ddp)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    handle = thinwire.attach(ddp, method)
    for step in range(4):
        handle.set_lr(optimizer.param_groups[0]["lr"])
        train(ddp, optimizer, [step])
        schedule.step()
    wrong = error_of(lambda: handle.set_lr(-1.0))
    return plain, problem, parameters(ddp.module), wrong


def test_the_learning_rate_is_the_optimizers_or_must_be_set() -> None:
    for plain, problem, ddp, wrong in run(with_rates, BY_RATE):
        assert same(plain, ddp)
        assert f"{BY_RATE} needs the learning rate: call handle.set_lr(...) before backward()" in str(problem)
        assert "a learning rate of 0 or more, not -1.0" in str(wrong)


def error_of_attach(method: str) -> object:
    model = classifier()
    return error_of(lambda: thinwire.attach(model, method, optimizer=sgd(model)))


def test_by_rate_with_a_method_that_exchanges_parameters_is_an_error() -> None:
    for error in run(error_of_attach, f"LocalSGD({BY_RATE})"):
        assert "by_rate=True is for gradients" in str(error)


def used_or_not(find_unused_parameters: bool) -> tuple[float, bool, int]:
    """A layer that only rank 0 uses in the first step, and no rank in the second."""
    model = nn.ModuleDict({"often": nn.Linear(2, 2, bias=False), "rarely": nn.Linear(2, 2, bias=False)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    handle = thinwire.attach(model, "dense", optimizer=optimizer, find_unused_parameters=find_unused_parameters)
    x, rank = torch.ones(1, 2), dist.get_rank()
    for step in range(2):
        optimizer.zero_grad()
        y = model["often"](x).sum() + (model["rarely"](x).sum() if step == rank == 0 else 0)
        y.backward()
        optimizer.step()
        if step == 0:
            gradient = float(model["rarely"].weight.grad.sum())
    return gradient, model["rarely"].weight.grad is None, handle.meter.payload_bytes


def test_without_find_unused_parameters_no_flags_are_sent() -> None:
    (gradient, none, payload), _ = run(used_or_not, True)
    (same_gradient, zero, smaller_payload), _ = run(used_or_not, False)
    assert gradient == same_gradient == 2.0, "four ones on one of two ranks"
    assert (none, zero) == (True, False)
    assert smaller_payload == 2 * 2 * 16 < payload


def find_unused_errors() -> list[str]:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    plain = [error_of(lambda: thinwire.attach(model, "dpsgd", optimizer=optimizer, find_unused_parameters=False))[1]]
    return [
        *plain,
        error_of(lambda: thinwire.attach(DistributedDataParallel(model), "topk", find_unused_parameters=False))[1],
    ]


def test_find_unused_parameters_is_for_gradients_of_plain_modules() -> None:
    for neighbors, ddp in run(find_unused_errors):
        assert "find_unused_parameters=False needs a method that averages the gradients of all ranks" in neighbors
        assert "leave out optimizer=, group= and find_unused_parameters=" in ddp
