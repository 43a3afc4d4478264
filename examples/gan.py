"""Train a GAN, two models with an optimizer each, to sample points from a ring of eight clusters.

    python examples/gan.py                                        # one replica
    thinwire run examples/gan.py --ranks 4                        # four processes
    thinwire run examples/gan.py --ranks 4 --transport simulated  # four in one process: the same bits
    thinwire run examples/gan.py --ranks 4 --method int8          # a quarter of the bytes, for both models

Each replica samples its own points and noise: `seed=` seeds each replica differently. A GAN that fails samples from a
few clusters only, so the last line prints how many of the eight it has found, and the share of its points in a
cluster.
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
CENTERS = 2 * torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)


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
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=3e-3, betas=(0.5, 0.99))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.5, 0.99))
generator, generator_optimizer = repl.wrap(generator, generator_optimizer)
critic, critic_optimizer = repl.wrap(critic, critic_optimizer)


def input_fn(ctx: Context) -> Iterator[Tensor]:
    """Points of the ring, different ones on every replica."""
    size = ctx.per_replica_batch_size(BATCH)
    while True:
        points = CENTERS[torch.randint(8, (size,))] + SPREAD * torch.randn(size, 2)
        yield points.to(ctx.device)


def noise(count: int) -> Tensor:
    return torch.randn(count, NOISE).to(device)


def step_fn(ctx: Context, real: Tensor) -> None:
    """Train the critic to distinguish generated points from real ones, then the generator to fool it."""
    fake = generator(noise(len(real)))
    loss = F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean()
    critic_optimizer.zero_grad()
    loss.backward()
    critic_optimizer.step()

    loss = F.softplus(-critic(fake)).mean()
    generator_optimizer.zero_grad()
    loss.backward()
    generator_optimizer.step()


@torch.no_grad()
def clusters(ctx: Context, model: nn.Module) -> Tensor:
    """The number of the model's samples in each cluster; every replica computes a part of them."""
    samples = model(noise(ctx.per_replica_batch_size(SAMPLES))).cpu()
    distance, nearest = torch.cdist(samples, CENTERS).min(dim=1)
    return ctx.all_sum(torch.bincount(nearest[distance < 3 * SPREAD], minlength=8))


def summary(counts: Tensor) -> str:
    found = int((counts > SAMPLES / 8 / 4).sum())  # with a quarter of its share, or more
    return f"clusters {found} of 8, points in one {counts.sum() / SAMPLES:.3f}"


before = clusters(repl.context, repl.handles[0].average())
repl.run(step_fn, input_fn, args.steps)
mean = repl.handles[0].average()
after = clusters(repl.context, mean)
if repl.rank == 0:
    link = sum(handle.meter.link_bytes for handle in repl.handles)
    digest = sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in mean.parameters())).hexdigest()[:12]
    print(f"before: {summary(before)}")
    print(f"{repl.method}, replicas {repl.num_replicas}: {summary(after)}, link {link:,} bytes, digest {digest}")
