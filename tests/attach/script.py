"""An ordinary training script, with one line of thinwire in it."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire


def main() -> DistributedDataParallel:
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="powersgd")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--no-destroy", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
    handle = thinwire.attach(ddp, args.method)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)

    for _ in range(args.steps):
        x = torch.randn(32, 20)
        loss = nn.functional.mse_loss(ddp(x), x[:, :10].sin())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    if dist.get_rank() == 0:
        print(f"{handle.meter.steps} steps, compression ratio {handle.meter.ratio:.1f}")
    if not args.no_destroy:
        dist.destroy_process_group()
    return ddp


if __name__ == "__main__":
    ddp = main()  # alive until the interpreter exits, as in a script that trains at module level
