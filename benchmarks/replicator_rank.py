"""One rank of the benchmark: steps of a hand-written loop and of `Replicator.run`, in turns, in one run."""

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

BATCH, FEW = 128, 4  # over all replicas; the batch of the task, and one for short steps
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
    """Pairs of seconds: a step of one model by hand, and beside it a step of the other by run()."""
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
        if i > 1:  # the first steps have costs of their own
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
    pairs_by_length = {}
    for name, steps, batch in (("full", sys.argv[1], BATCH), ("short", sys.argv[2], FEW)):
        # Each model takes both parts, as its place in memory makes a difference.
        both = [measure(*models, int(steps), batch) for models in ((first, second), (second, first))]
        pairs_by_length[name] = [pair for pairs in both for pair in pairs]
    if os.environ.get("RANK", "0") == "0":  # the lines of two ranks could be interleaved
        print(json.dumps(pairs_by_length), flush=True)


if __name__ == "__main__":
    main()
