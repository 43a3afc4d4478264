"""detach() restores the model's own training, and a model that is garbage-collected leaves nothing behind."""

import gc
import threading
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

import thinwire

from .processes import run
from .training import (
    TINY_BUCKETS,
    all_same,
    batch,
    classifier,
    error_of,
    gradients,
    loss_of,
    parameters,
    same,
    sgd,
    totals,
    train,
)


def detached_and_plain() -> tuple[dict, dict]:
    """Train with a method, detach and continue; and plain DDP from the same parameters."""
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=TINY_BUCKETS)
    handle = thinwire.attach(ddp, "topk")
    train(ddp, sgd(ddp), range(3))
    handle.detach()
    model = classifier(seed=1)
    model.load_state_dict(ddp.module.state_dict())
    plain = DistributedDataParallel(model, bucket_cap_mb=TINY_BUCKETS)
    before = totals(handle)
    for each in (ddp, plain):
        train(each, sgd(each), range(3, 8))
    assert totals(handle) == before, "a detached method counts nothing"
    return parameters(ddp), parameters(plain)


def test_a_detached_ddp_model_equals_plain_ddp() -> None:
    assert all_same(p for result in run(detached_and_plain) for p in result)


def test_a_detached_ddp_model_on_four_ranks_equals_plain_ddp_up_to_the_order_of_the_sum() -> None:
    results = run(detached_and_plain, ranks=4)
    assert all_same(p for p, _ in results)
    for detached, plain in results:
        for name, p in plain.items():
            torch.testing.assert_close(detached[name], p)


def attached_again(method: str) -> dict:
    ddp = DistributedDataParallel(classifier(), bucket_cap_mb=TINY_BUCKETS)
    optimizer = sgd(ddp)
    first = thinwire.attach(ddp, "topk")
    train(ddp, optimizer, range(3))
    error = error_of(lambda: thinwire.attach(ddp, method))
    first.detach()
    train(ddp, optimizer, range(3, 5))
    second = thinwire.attach(ddp, method)
    train(ddp, optimizer, range(5, 9))
    return {
        "error": error,
        "steps": (first.meter.steps, second.meter.steps),
        "compressed": second.meter.payload_bytes < second.meter.dense_bytes,
        "parameters": parameters(ddp),
    }


@pytest.mark.parametrize("method", ["topk", "powersgd"])
def test_a_second_attach_needs_a_detach_and_then_works(method: str) -> None:
    results = run(attached_again, method)
    assert all_same(result["parameters"] for result in results)
    for result in results:
        kind, text = result["error"]
        assert kind == "ValueError"
        assert "already" in text
        assert "detach()" in text
        assert result["steps"] == (3, 4)
        assert result["compressed"]


def detached_optimizer() -> dict:
    model = classifier()
    optimizer = SGD(model.parameters(), lr=0.1)  # without momentum, which would keep the local step of each rank
    handle = thinwire.attach(model, "topk", optimizer=optimizer)
    train(model, optimizer, range(3))
    handle.detach()
    before = totals(handle)
    optimizer.zero_grad()
    loss_of(model, 3).backward()
    local = gradients(model)
    optimizer.step()
    kept = same(gradients(model), local)
    silent = totals(handle) == before
    again = thinwire.attach(model, "powersgd", optimizer=optimizer)
    train(model, optimizer, range(4, 7))
    return {"local": local, "kept": kept, "silent": silent, "steps": again.meter.steps, "parameters": parameters(model)}


def test_a_detached_optimizer_steps_with_local_gradients_and_can_be_attached_again() -> None:
    results = run(detached_optimizer)
    assert all(result["kept"] and result["silent"] and result["steps"] == 3 for result in results)
    assert not same(results[0]["local"], results[1]["local"])
    assert all_same(result["parameters"] for result in results), "attach copies the parameters of rank 0 again"


def foreign_hook() -> tuple[str, str]:
    ddp = DistributedDataParallel(classifier())
    ddp.register_comm_hook(None, fp16_compress_hook)
    return error_of(lambda: thinwire.attach(ddp, "topk"))


def test_a_ddp_model_with_another_hook_is_an_error() -> None:
    for kind, text in run(foreign_hook):
        assert kind == "ValueError"
        assert "communication hook" in text


def saved_after_detach() -> bool:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "topk")
    train(ddp, sgd(ddp), range(2))
    saved = handle.state_dict()
    handle.detach()
    return same(handle.state_dict(), saved)


def test_a_detached_handle_still_has_its_state() -> None:
    assert run(saved_after_detach, timeout=20) == [True, True]


def two_models_after_detach(times: int) -> dict:
    """Two models must not both take over the process group that a detached handle released."""
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "topk")
    train(ddp, sgd(ddp), range(2))
    for _ in range(times):
        handle.detach()
    models = [DistributedDataParallel(classifier(seed), bucket_cap_mb=TINY_BUCKETS) for seed in range(2)]
    for model in models:
        thinwire.attach(model, "powersgd")
    optimizers = [sgd(model) for model in models]
    for step in range(10):
        x, _ = batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        # One backward through both models: their buckets alternate, on two queues.
        sum(model(x).square().mean() for model in models).backward()
        for optimizer in optimizers:
            optimizer.step()
    return {str(i): parameters(model) for i, model in enumerate(models)}


@pytest.mark.parametrize("times", [1, 2])
def test_detaching_twice_is_harmless(times: int) -> None:
    assert all_same(run(two_models_after_detach, times))


def freed_objects(detach: bool) -> dict[str, bool]:
    ddp = DistributedDataParallel(classifier())
    handle = thinwire.attach(ddp, "topk")
    train(ddp, sgd(ddp), range(2))
    if detach:
        handle.detach()
    alive = {"ddp": weakref.ref(ddp), "model": weakref.ref(ddp.module)}
    del ddp, handle
    gc.collect()
    return {name: reference() is None for name, reference in alive.items()}


@pytest.mark.parametrize("detach", [True, False], ids=["detached", "attached"])
def test_a_model_without_references_is_freed(detach: bool) -> None:
    for freed in run(freed_objects, detach):
        assert freed == {"ddp": True, "model": True}


def threads_after_detach() -> tuple[int, int]:
    before = threading.active_count()
    ddp = DistributedDataParallel(classifier())
    for _ in range(3):
        handle = thinwire.attach(ddp, "topk")
        train(ddp, sgd(ddp), range(1))
        handle.detach()
    return before, threading.active_count()


def test_detach_ends_the_thread() -> None:
    for before, after in run(threads_after_detach):
        assert after == before


def in_a_subgroup() -> dict:
    """Ranks 0 and 1 train one model, ranks 2 and 3 another, at the same time."""
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = groups[rank // 2]
    ddp = DistributedDataParallel(classifier(), process_group=group)
    handle = thinwire.attach(ddp, "powersgd")
    train(ddp, sgd(ddp), range(3))
    model = classifier(seed=rank)
    optimizer = sgd(model)
    plain = thinwire.attach(model, "topk", optimizer=optimizer, group=group)
    train(model, optimizer, range(3))
    everyone = [torch.zeros(1) for _ in range(4)]
    dist.all_gather(everyone, torch.tensor([float(rank)]))
    return {
        "ddp": parameters(ddp),
        "plain": parameters(model),
        "reprs": (repr(handle), repr(plain)),
        "everyone": [int(r) for r in everyone],
    }


def test_two_groups_train_two_models_at_the_same_time() -> None:
    results = run(in_a_subgroup, ranks=4)
    for kind in ("ddp", "plain"):
        assert same(results[0][kind], results[1][kind])
        assert same(results[2][kind], results[3][kind])
        assert not same(results[0][kind], results[2][kind])
    for rank, result in enumerate(results):
        assert all(f"on rank {rank % 2} of 2" in text for text in result["reprs"])
        assert result["everyone"] == [0, 1, 2, 3]
