"""NaN or infinity in one rank's gradient: all ranks handle it, and states stay as they were."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import run
from .training import TINY_BUCKETS, all_same, classifier, error_of, gradients, loss_of, parameters, same, sgd, train

METHODS = ["dense", "fp16", "topk", "randomk", "sign", "int8", "powersgd", "server", "topk8", "dgc"]
# A matrix with a message of its own, and a vector that is fused with other tensors.
ALONE, FUSED = "2.weight", "0.bias"
CASES = [
    pytest.param((float("nan"), ALONE, 1, None), id="nan-in-a-matrix-of-rank-1"),
    pytest.param((float("inf"), FUSED, 0, TINY_BUCKETS), id="inf-in-a-vector-of-rank-0-in-tiny-buckets"),
]
BAD = 3  # the step with the nonfinite gradient


class Script:
    """A training script in which one entry of one gradient on one rank is not finite in one step."""

    def __init__(
        self,
        mode: str,
        method: str,
        on_nonfinite: str,
        value: float,
        name: str,
        where: int,
        bucket_cap_mb: float | None,
    ) -> None:
        self.mode, self.value, self.name, self.where = mode, value, name, where
        model = classifier()
        if mode == "ddp":
            self.model: nn.Module = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
            self.optimizer = sgd(self.model)
            self.handle = thinwire.attach(self.model, method, on_nonfinite=on_nonfinite)
        else:
            self.model, self.optimizer = model, sgd(model)
            self.handle = thinwire.attach(model, method, optimizer=self.optimizer, on_nonfinite=on_nonfinite)

    def nonfinite_backward(self, step: int) -> None:
        self.optimizer.zero_grad()
        parameter = dict(getattr(self.model, "module", self.model).named_parameters())[self.name]
        hook = parameter.register_hook(self._corrupt)
        try:
            loss_of(self.model, step).backward()
        finally:
            hook.remove()

    def _corrupt(self, gradient: Tensor) -> Tensor:
        if dist.get_rank() != self.where:
            return gradient
        corrupted = gradient.clone()
        corrupted.view(-1)[7] = self.value
        return corrupted


def raised(mode: str, method: str, *case: Any) -> dict:
    script = Script(mode, method, "raise", *case)
    train(script.model, script.optimizer, range(BAD))
    before, p = script.handle.state_dict(), parameters(script.model)
    if mode == "ddp":
        error = error_of(lambda: script.nonfinite_backward(BAD))
    else:
        script.nonfinite_backward(BAD)
        error = error_of(script.optimizer.step)
    state_unchanged = same(script.handle.state_dict()["state"], before["state"])
    parameters_unchanged = same(parameters(script.model), p)
    script.optimizer.zero_grad()
    train(script.model, script.optimizer, range(BAD + 1, BAD + 5))
    return {
        "error": error,
        "state unchanged": state_unchanged,
        "parameters unchanged": parameters_unchanged,
        "parameters": parameters(script.model),
    }


def without_the_step(mode: str, method: str, *case: Any) -> dict:
    script = Script(mode, method, "raise", *case)
    train(script.model, script.optimizer, range(BAD))
    train(script.model, script.optimizer, range(BAD + 1, BAD + 5))
    return parameters(script.model)


def check_raised(mode: str, method: str, *case: Any) -> None:
    _, name, where, _ = case
    results = run(raised, mode, method, *case)
    for rank, result in enumerate(results):
        kind, text = result["error"]
        assert kind == "NonFiniteError"
        if rank == where:
            assert f"gradient of {name}, on this rank" in text
        else:
            assert "on another rank" in text
            # Other ranks know only the message, which may be of several parameters.
            assert name == FUSED or name in text
        assert result["parameters unchanged"]
        assert all(p.isfinite().all() for p in result["parameters"].values())
    assert all_same(result["parameters"] for result in results)
    assert all(result["state unchanged"] for result in results), "the state must be as it was before the step"
    untouched = run(without_the_step, mode, method, *case)
    assert same(results[0]["parameters"], untouched[0]), "the run must continue as if the step had not happened"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_raise_with_ddp_raises_on_all_ranks_and_restores_the_state(method: str, case: Any) -> None:
    check_raised("ddp", method, *case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", ["dense", "topk", "powersgd", "int8"])
def test_raise_with_a_plain_module_raises_on_all_ranks_and_restores_the_state(method: str, case: Any) -> None:
    check_raised("optimizer", method, *case)


def continued(mode: str, method: str, on_nonfinite: str, *case: Any) -> dict:
    script = Script(mode, method, on_nonfinite, *case)
    train(script.model, script.optimizer, range(BAD))
    before = script.handle.state_dict()
    script.nonfinite_backward(BAD)
    if mode == "optimizer" or on_nonfinite == "skip":
        script.optimizer.step()
    reduced, after = gradients(script.model), script.handle.state_dict()
    if on_nonfinite == "skip":
        train(script.model, script.optimizer, range(BAD + 1, BAD + 5))
    return {
        "before": before,
        "after": after,
        "gradients": reduced,
        "skipped": script.handle.meter.skipped,
        "steps": script.handle.meter.steps,
        "parameters": parameters(script.model),
    }


def check_skipped(mode: str, method: str, *case: Any) -> None:
    _, name, _, _ = case
    results = run(continued, mode, method, "skip", *case)
    for result in results:
        (dropped,) = (key for key in result["before"]["state"] if name in key.split(","))
        assert result["skipped"] == 1
        assert result["steps"] == BAD + 5
        assert same(result["after"]["state"][dropped], result["before"]["state"][dropped])
        zero = {parameter for parameter, gradient in result["gradients"].items() if (gradient == 0).all()}
        assert zero >= set(dropped.split(","))
        assert zero < result["gradients"].keys(), "finite gradients are exchanged as usual"
        for key in result["before"]["state"].keys() - {dropped}:
            assert not same(result["after"]["state"][key], result["before"]["state"][key]), "other units are exchanged"
        assert all(p.isfinite().all() for p in result["parameters"].values())
    assert all_same((result["parameters"], result["gradients"]) for result in results)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_skip_with_ddp_drops_the_message_and_continues(method: str, case: Any) -> None:
    check_skipped("ddp", method, *case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", ["dense", "topk", "powersgd"])
def test_skip_with_a_plain_module_drops_the_message_and_continues(method: str, case: Any) -> None:
    check_skipped("optimizer", method, *case)


def check_passed(mode: str, method: str, *case: Any) -> None:
    _, name, _, _ = case
    for result in run(continued, mode, method, "pass", *case):
        assert result["gradients"][name].isnan().any(), "a gradient scaler must see NaN on every rank"
        assert same(result["after"]["state"], result["before"]["state"])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_pass_with_ddp_leaves_nan_on_all_ranks_and_restores_the_state(method: str, case: Any) -> None:
    check_passed("ddp", method, *case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", ["dense", "topk", "powersgd"])
def test_pass_with_a_plain_module_leaves_nan_on_all_ranks_and_restores_the_state(method: str, case: Any) -> None:
    check_passed("optimizer", method, *case)


def scaled(method: str) -> dict:
    """The loop of the torch.amp.GradScaler documentation, with an overflow on rank 1."""
    script = Script("ddp", method, "pass", float("inf"), ALONE, 1, None)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scales, moved = [], []
    for step in range(BAD + 3):
        script.optimizer.zero_grad()
        before = parameters(script.model)
        parameter = dict(script.model.module.named_parameters())[ALONE]
        hook = parameter.register_hook(script._corrupt) if step == BAD else None
        scaler.scale(loss_of(script.model, step)).backward()
        if hook is not None:
            hook.remove()
        scaler.step(script.optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        moved.append(not same(parameters(script.model), before))
    return {"scales": scales, "moved": moved, "parameters": parameters(script.model)}


@pytest.mark.parametrize("method", ["dense", "topk", "powersgd"])
def test_a_gradient_scaler_skips_the_step_on_all_ranks(method: str) -> None:
    results = run(scaled, method)
    assert all_same(results)
    assert results[0]["scales"] == [1024.0] * BAD + [512.0] * 3
    assert results[0]["moved"] == [True] * BAD + [False] + [True] * 2


def nonfinite_everywhere() -> tuple[str, str]:
    """Each rank has a nonfinite gradient of another parameter."""
    rank = dist.get_rank()
    script = Script("ddp", "powersgd", "raise", float("nan"), "0.weight" if rank == 0 else "4.weight", rank, None)
    return error_of(lambda: script.nonfinite_backward(0))


def test_each_rank_names_its_own_parameter() -> None:
    first, second = run(nonfinite_everywhere)
    assert first[0] == second[0] == "NonFiniteError"
    assert "gradient of 0.weight, on this rank" in first[1]
    assert "gradient of 4.weight, on this rank" in second[1]


def test_raise_works_on_four_ranks() -> None:
    results = run(raised, "ddp", "int8", float("nan"), ALONE, 2, TINY_BUCKETS, ranks=4)
    assert [result["error"][0] for result in results] == ["NonFiniteError"] * 4
    assert ["on this rank" in result["error"][1] for result in results] == [False, False, True, False]
    assert all_same(result["parameters"] for result in results)
