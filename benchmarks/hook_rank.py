"""One rank of the hook benchmark; rank 0 prints the minimum seconds of a step, by method."""

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from benchmarks.hook import METHODS, PLAIN
from benchmarks.timing import interleaved

WIDTH, LAYERS, BATCH, REPEATS = 2500, 4, 8, 8


def model() -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))))


def nothing(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    data = torch.randn(BATCH, WIDTH)
    models = {"nothing": model(), PLAIN: model()}
    models["nothing"].register_comm_hook(None, nothing)
    for name in METHODS:
        models[name] = model()
        thinwire.attach(models[name], name)

    def step(ddp: DistributedDataParallel) -> None:
        ddp.zero_grad()
        ddp(data).square().mean().backward()
        dist.barrier()

    jobs = {name: lambda ddp=ddp: step(ddp) for name, ddp in models.items()}
    interleaved(jobs, 2)  # buckets are rebuilt after the first step, buffers allocated in the second
    best = interleaved(jobs, REPEATS)
    if dist.get_rank() == 0:
        print(json.dumps(best), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
