"""A rank of the benchmark: steps of a hand-written loop and of `Replicator.run`, in turns, in one run."""

import json
import statistics
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import SGD

import thinwire
from thinwire.lab.models import MODELS

BATCH = 128  # over all replicas, as the task has it


def main() -> None:
    steps = int(sys.argv[1])
    torch.set_num_threads(1)
    replicator = thinwire.Replicator("dense", seed=1)
    context = replicator.context
    here, there = (MODELS["resnet20"].build() for _ in range(2))
    by_hand, by_run = (SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (here, there))
    if context.num_replicas > 1:
        thinwire.attach(here, "dense", optimizer=by_hand)
    replicator.wrap(there, by_run)

    def batches(context: thinwire.Context) -> Iterator[tuple[Tensor, Tensor]]:
        size = context.per_replica_batch_size(BATCH)
        images, labels = torch.randn(size, 3, 32, 32), torch.randint(10, (size,))
        while True:
            yield images, labels

    def step(model: nn.Module, optimizer: SGD, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    mine, theirs = batches(context), replicator.iterate(lambda _, batch: step(there, by_run, batch), batches)
    seconds: dict[str, list[float]] = {"hand": [], "run": []}
    for i in range(steps + 2):
        for name in ("hand", "run") if i % 2 else ("run", "hand"):
            context.barrier()
            start = time.perf_counter()
            if name == "run":
                next(theirs)
            else:
                step(here, by_hand, next(mine))
            if i > 1:  # the first steps meet costs of their own
                seconds[name].append(time.perf_counter() - start)
    if context.rank == 0:
        print(json.dumps({name: statistics.median(taken) for name, taken in seconds.items()}))


if __name__ == "__main__":
    main()
