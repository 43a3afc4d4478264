"""A plain DDP script with one line of thinwire in it.

    torchrun --nproc-per-node 4 examples/ddp.py
    torchrun --nproc-per-node 4 examples/ddp.py --method topk

`thinwire methods` lists the methods. Without the line that calls `attach`, the script trains with DDP's own all-reduce.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire

parser = argparse.ArgumentParser()
parser.add_argument("--method", default="powersgd")
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")

torch.manual_seed(0)
teacher = nn.Linear(64, 10).to(device)  # the labels to learn: the same on every rank
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
model = DistributedDataParallel(model.to(device))
handle = thinwire.attach(model, args.method)  # the one line
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

torch.manual_seed(1 + rank)  # each rank samples its own batches
for step in range(args.steps):
    inputs = torch.randn(32, 64, device=device)
    loss = F.cross_entropy(model(inputs), teacher(inputs).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

if rank == 0:
    sent = f"{handle.meter.payload_bytes:,} bytes, compression ratio {handle.meter.ratio:.1f}x"
    print(f"{args.method}: loss {loss.item():.3f}, payload {sent}")
dist.destroy_process_group()
