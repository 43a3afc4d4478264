"""Train a GAN, two models with an optimizer each, to draw points from a ring of eight clusters.

    python examples/gan.py                                        # one replica
    thinwire run examples/gan.py --ranks 4                        # four processes
    thinwire run examples/gan.py --ranks 4 --transport simulated  # four in one process: the same bits
    thinwire run examples/gan.py --ranks 4 --method int8          # a quarter of the bytes, for both models

Each replica draws points and noise of its own: `seed=` seeds each of them differently. A GAN that goes wrong draws
from a few clusters only, so the last line tells how many of the eight it has found, and how many of its points are in
one.
"""

import argparse
import math
from collections.abc import Iterator
from hashlib import sha256

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinwire
from thinwire import Context

BATCH, NOISE, WIDTH, SAMPLES = 256, 8, 64, 4096  # batches and samples are over all replicas
SPREAD = 0.15  # of a cluster, on a ring of radius 2
ANGLES = torch.arange(8) * (2 * math.pi / 8)
CENTRES = 2 * torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(inputs, WIDTH), nn.LeakyReLU(0.2)),
        *(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2)),
        nn.Linear(WIDTH, outputs),
    )


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
args = parser.parse_args()

repl = thinwire.Replicator("dense", seed=2)
device = repl.context.device
generator, critic = mlp(NOISE, 2).to(device), mlp(2, 1).to(device)
draws = torch.optim.Adam(generator.parameters(), lr=3e-3, betas=(0.5, 0.99))
judges = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.5, 0.99))
generator, draws = repl.wrap(generator, draws)
critic, judges = repl.wrap(critic, judges)


def input_fn(ctx: Context) -> Iterator[Tensor]:
    """Points of the ring, other ones for every replica."""
    size = ctx.per_replica_batch_size(BATCH)
    while True:
        points = CENTRES[torch.randint(8, (size,))] + SPREAD * torch.randn(size, 2)
        yield points.to(ctx.device)


def noise(count: int) -> Tensor:
    return torch.randn(count, NOISE).to(device)


def step_fn(ctx: Context, real: Tensor) -> None:
    """The critic learns to tell drawn points from real ones, then the generator learns to fool it."""
    drawn = generator(noise(len(real)))
    loss = F.softplus(critic(drawn.detach())).mean() + F.softplus(-critic(real)).mean()
    judges.zero_grad()
    loss.backward()
    judges.step()

    loss = F.softplus(-critic(drawn)).mean()
    draws.zero_grad()
    loss.backward()
    draws.step()


@torch.no_grad()
def clusters(ctx: Context, model: nn.Module) -> Tensor:
    """How many of the model's samples are in each cluster; every replica draws a part of them."""
    samples = model(noise(ctx.per_replica_batch_size(SAMPLES))).cpu()
    distance, nearest = torch.cdist(samples, CENTRES).min(dim=1)
    return ctx.all_sum(torch.bincount(nearest[distance < 3 * SPREAD], minlength=8))


def told(counts: Tensor) -> str:
    found = int((counts > SAMPLES / 8 / 4).sum())  # with a quarter of its share, or more
    return f"clusters {found} of 8, points in one {counts.sum() / SAMPLES:.3f}"


before = clusters(repl.context, repl.handles[0].average())
repl.run(step_fn, input_fn, args.steps)
mean = repl.handles[0].average()
after = clusters(repl.context, mean)
if repl.rank == 0:
    link = sum(handle.meter.link_bytes for handle in repl.handles)
    digest = sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in mean.parameters())).hexdigest()[:12]
    print(f"before: {told(before)}")
    print(f"{repl.method}, replicas {repl.num_replicas}: {told(after)}, link {link:,} bytes, digest {digest}")
