"""One rank's part of a training run on the digits, with any method between the ranks."""

import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from thinwire.lab import digits
from thinwire.lab.runs import Run

BATCH = 32  # per rank
LEARNING_RATE, MOMENTUM = 0.05, 0.9


def train(method: str, steps: int, seed: int, progress: Callable[[int, float], None]) -> Run:
    """Train the digits network on all ranks of the default group; returns what rank 0 should save."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    training, test = digits.load()
    model = DistributedDataParallel(digits.network())
    handle = thinwire.attach(model, method)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    losses, payload, elapsed = [], [], []
    dist.barrier()
    start, start_cpu = time.perf_counter(), time.thread_time()
    for step, chosen in zip(range(steps), batches(len(training.labels), rank, ranks, seed), strict=False):
        loss = F.cross_entropy(model(training.images[chosen]), training.labels[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        payload.append(handle.meter.payload_bytes)
        elapsed.append(time.perf_counter() - start)
        progress(step + 1, float(loss.detach()))
    seconds = {"total": time.perf_counter() - start, "compute": time.thread_time() - start_cpu}

    meters = from_all_ranks(handle.meter.as_dict(prefix=""))
    mean_loss = averaged(torch.stack(losses))
    meter = max(meters, key=lambda counted: counted["link_bytes"])
    handle.detach()
    return Run(
        workload="digits-cnn",
        method=handle.method,
        ranks=ranks,
        transport="processes",
        seed=seed,
        steps=steps,
        metrics=evaluate(model.module, test),
        bytes={name: int(meter[f"{name}_bytes"]) for name in ("dense", "payload", "link")},
        ratio=meter["dense_bytes"] / meter["payload_bytes"],
        seconds=seconds | {name: meter[f"{name}_seconds"] for name in ("encode", "exchange", "decode")},
        history=[
            {"step": i + 1, "loss": round(float(mean_loss[i]), 6), "payload_bytes": payload[i], "seconds": elapsed[i]}
            for i in range(steps)
        ],
    )


def batches(count: int, rank: int, ranks: int, seed: int) -> Iterator[Tensor]:
    """This rank's batches, epoch after epoch; no image is on two ranks in an epoch."""
    generator = torch.Generator().manual_seed(seed)
    per_rank = count // (ranks * BATCH) * BATCH
    while True:
        order = torch.randperm(count, generator=generator)[: per_rank * ranks]
        yield from torch.split(order[rank::ranks], BATCH)


@torch.no_grad()
def evaluate(model: nn.Module, test: digits.Split) -> dict[str, float]:
    model.eval()
    scores = model(test.images)
    return {
        "test_accuracy": float((scores.argmax(1) == test.labels).float().mean()),
        "test_loss": float(F.cross_entropy(scores, test.labels)),
    }


def from_all_ranks(mine: dict[str, float]) -> list[dict[str, float]]:
    everyone: list[dict[str, float]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, mine)
    return everyone


def averaged(tensor: Tensor) -> Tensor:
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()
