"""Train a small transformer whose parameters are split over two processes.

    thinwire run examples/split_language_model.py --ranks 4                        # two replicas, two processes each
    thinwire run examples/split_language_model.py --ranks 4 --method int8          # fewer bytes between the replicas
    thinwire run examples/split_language_model.py --ranks 4 --transport simulated  # all four in one process
    thinwire run examples/split_language_model.py --ranks 4 -- --split tensor      # DTensor splits each block
    python examples/split_language_model.py                                        # one replica in one process

`--split hand` places the first layers on one device of the replica and the rest on the other. `--split tensor` gives
each device half of the heads and half of the hidden units of every block; torch does this between processes only, so
it cannot be simulated. In both cases the two devices of a replica receive the same text, and the method exchanges
between those devices of different replicas that have the same part of the model.
"""

import argparse
import math
import random
from collections.abc import Iterator
from hashlib import sha256

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import thinwire
from thinwire import Context

WINDOW, BATCH, WIDTH, HEAD, BLOCKS = 48, 32, 64, 16, 4  # the batch is over all replicas
NOUNS, VERBS = ("cat", "dog", "bird", "old man", "child", "fox"), ("sees", "follows", "likes", "hears", "calls")
SENTENCE = (("a", "the"), NOUNS, VERBS, ("a", "the"), NOUNS)
pick = random.Random(1).choice
TEXT = " ".join(" ".join(map(pick, SENTENCE)) + "." for _ in range(400))  # the child hears a fox. a cat ...
CHARACTERS = sorted(set(TEXT))
PLAN = {name: ColwiseParallel() for name in ("queries", "keys", "values", "wide")}
PLAN |= {name: RowwiseParallel() for name in ("attended", "narrow")}


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(len(CHARACTERS), WIDTH), nn.Embedding(WINDOW, WIDTH)

    def forward(self, text: Tensor) -> Tensor:
        return self.characters(text) + self.positions.weight


class Block(nn.Module):
    """Attention and a feed-forward network, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries, self.keys, self.values, self.attended = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        projected = (layer(y).unflatten(2, (-1, HEAD)) for layer in (self.queries, self.keys, self.values))
        values = F.scaled_dot_product_attention(*(heads.transpose(1, 2) for heads in projected), is_causal=True)
        x = x + self.attended(values.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


def split(ctx: Context, layers: nn.Sequential, way: str) -> nn.Module:
    """This process's part of the model."""
    if way == "hand":
        half = len(layers) // 2
        return nn.Sequential(ctx.logical_device(0).place(layers[:half]), ctx.logical_device(1).place(layers[half:]))
    layers = layers.to(ctx.device)
    for block in layers[1:-1] if ctx.mesh is not None else ():  # without a mesh, one process is the entire replica
        parallelize_module(block, ctx.mesh, PLAN)
    return layers


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--split", choices=("hand", "tensor"), default="hand")
args = parser.parse_args()

repl = thinwire.Replicator("dense", devices_per_replica=2, seed=1)
ctx = repl.context
head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(CHARACTERS)))
layers = nn.Sequential(Embedding(), *(Block() for _ in range(BLOCKS)), head)
total = sum(p.numel() for p in layers.parameters())
model = split(ctx, layers, args.split)
del head, layers  # frees the parameters of other processes
model, optimizer = repl.wrap(model, torch.optim.AdamW(model.parameters(), lr=3e-3))


def input_fn(ctx: Context) -> Iterator[Tensor]:
    """Random windows of the text: different ones for each replica, the same ones for both of its devices."""
    numbers = torch.tensor([CHARACTERS.index(c) for c in TEXT], device=ctx.device)
    while True:
        starts = torch.randint(len(TEXT) - WINDOW, (ctx.per_replica_batch_size(BATCH), 1))
        yield numbers[starts + torch.arange(WINDOW + 1)]


def step_fn(ctx: Context, text: Tensor) -> Tensor:
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return ctx.all_mean(loss) / math.log(2)


bits = repl.run(step_fn, input_fn, args.steps)
here = [(p.to_local() if isinstance(p, DTensor) else p).detach().cpu() for p in model.parameters()]
devices = " and ".join(str(i) for i in range(2) if ctx.logical_device(i).here)
line = f"replica {ctx.rank}, device {devices}: parameters {sum(p.numel() for p in here):,} of {total:,}"
line += f", bits per character {bits[0]:.3f} to {bits[-1]:.3f}, link {repl.handles[0].meter.link_bytes:,} bytes"
line += f", digest {sha256(b''.join(p.numpy().tobytes() for p in here)).hexdigest()[:12]}\n"
print(line, end="")  # in one write, as other processes print at the same time
