"""A rank of the benchmark: steps of a hand-written loop and of `Replicator.run`, in turns, in one run."""

import json
import os
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import SGD

import thinwire
from thinwire.lab.tasks.models import MODELS

BATCH, FEW = 128, 4  # over all replicas; as many as the task has, and so few that a step is short
Batch = tuple[Tensor, Tensor]


def batches(context: thinwire.Context, batch: int) -> Iterator[Batch]:
    size = context.per_replica_batch_size(batch)
    images, labels = torch.randn(size, 3, 32, 32), torch.randint(10, (size,))
    while True:
        yield images, labels


def step(model: nn.Module, optimizer: SGD, batch: Batch) -> Tensor:
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def measure(here: nn.Module, there: nn.Module, steps: int, batch: int) -> list[tuple[float, float]]:
    """The seconds of a step with one model by hand, and of one with the other by run() beside it, again and again."""
    replicator = thinwire.Replicator("dense", seed=1)
    context = replicator.context
    by_hand, by_run = (SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (here, there))
    handle = thinwire.attach(here, "dense", optimizer=by_hand) if context.num_replicas > 1 else None
    replicator.wrap(there, by_run)
    mine = batches(context, batch)
    theirs = replicator.iterate(lambda _, one: step(there, by_run, one), lambda context: batches(context, batch))
    pairs = []
    for i in range(steps + 2):
        seconds = {}
        for name in ("hand", "run") if i % 2 else ("run", "hand"):
            context.barrier()
            start = time.perf_counter()
            if name == "run":
                next(theirs)
            else:
                step(here, by_hand, next(mine))
            seconds[name] = time.perf_counter() - start
        if i > 1:  # the first steps meet costs of their own
            pairs.append((seconds["hand"], seconds["run"]))
    theirs.close()  # type: ignore[attr-defined]  # a generator
    if handle is not None:
        handle.detach()
    replicator.close()
    return pairs


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first, second = (MODELS["resnet20"].build() for _ in range(2))
    told = {}
    for name, steps, batch in (("whole", sys.argv[1], BATCH), ("short", sys.argv[2], FEW)):
        # Each model has both parts: where it lies in memory makes a difference of its own.
        both = [measure(*models, int(steps), batch) for models in ((first, second), (second, first))]
        told[name] = [pair for pairs in both for pair in pairs]
    if os.environ.get("RANK", "0") == "0":  # lines of two ranks may run into each other
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
