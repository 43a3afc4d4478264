"""If a rank dies, the other ranks raise a clear error instead of waiting."""

import os

import pytest
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import thinwire

from .processes import Exited, run
from .training import TINY_BUCKETS, classifier, error_of, loss_of, sgd, train


def die_in_training(mode: str, method: str, when: str) -> tuple[str, str]:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if mode == "ddp":
        model = DistributedDataParallel(classifier(), bucket_cap_mb=TINY_BUCKETS)
        optimizer = sgd(model)
        thinwire.attach(model, method)
    else:
        model = classifier()
        optimizer = sgd(model)
        thinwire.attach(model, method, optimizer=optimizer)
    train(model, optimizer, range(3))
    if rank == last and when == "between steps":
        os._exit(9)
    if rank == last and when == "in backward":
        # At the middle layer's gradient, the buckets of the last layers are in flight.
        dict(model.named_parameters())["module.2.weight"].register_hook(lambda gradient: os._exit(9))

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, 3).backward()
        optimizer.step()

    return error_of(step)


@pytest.mark.parametrize(
    ("mode", "method", "ranks", "when"),
    [
        ("ddp", "powersgd", 2, "between steps"),
        ("ddp", "topk", 4, "in backward"),
        ("optimizer", "int8", 2, "between steps"),
    ],
)
def test_the_other_ranks_raise_an_error_that_names_the_dead_rank(mode: str, method: str, ranks: int, when: str) -> None:
    *others, dead = run(die_in_training, mode, method, when, ranks=ranks, dies=ranks - 1, timeout=30)
    assert dead == Exited(9)
    for kind, text in others:
        assert kind == "PeerLostError", text
        assert f"rank {ranks - 1} failed: its connection was closed. This is rank" in text, text
        assert "after step 3" in text, text
