"""One rank of the benchmarks over links: seconds per step, of encoding and of decoding, by attached method."""

import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import thinwire
from thinwire.lab import links

ONE_BUCKET = 4000  # MB; torch's PowerSGD hook fails on gloo with several buckets
BATCH, WIDTH = 8, 4096


def network() -> nn.Module:
    """A network of 25 million parameters that takes little computation, so its exchange dominates."""
    return nn.Sequential(nn.Linear(1024, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1000))


def attached(name: str) -> tuple[DistributedDataParallel, thinwire.Handle | None]:
    torch.manual_seed(0)
    cap = ONE_BUCKET if name == "torch PowerSGD hook" else None
    # All ranks start with the same parameters: sending them again takes longer than all steps on a slow link.
    model = DistributedDataParallel(network(), bucket_cap_mb=cap, init_sync=False)
    match name:
        case "fp32 DDP":
            pass
        case "torch fp16 hook":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        case "torch PowerSGD hook":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        case _:
            return model, thinwire.attach(model, name)
    return model, None


def step_of(model: DistributedDataParallel) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(BATCH, 1024, generator=torch.Generator().manual_seed(dist.get_rank()))

    def step() -> None:
        loss: Tensor = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def coding_of(handle: thinwire.Handle | None) -> tuple[float, float]:
    """The seconds spent on encoding and on decoding so far."""
    return (0.0, 0.0) if handle is None else (handle.meter.encode_seconds, handle.meter.decode_seconds)


def main() -> None:
    names, steps = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    store, rank, size = next(dist.rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    seconds, coding = {}, {}
    for name in names:
        model, handle = attached(name)
        step = step_of(model)
        for _ in range(3):  # DDP rebuilds its buckets, torch's PowerSGD starts, all memory is touched
            step()
        times, before = [], coding_of(handle)
        for _ in range(steps):
            dist.barrier()
            start = perf_counter()
            step()
            times.append(perf_counter() - start)
        spent = [(now - then) / steps for now, then in zip(coding_of(handle), before, strict=True)]
        seconds[name], coding[name] = median(times), spent
    if rank == 0:
        print(json.dumps([seconds, coding]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
