"""Train a small CNN to read handwritten digits: the script is of one replica, the command sets the number.

    python examples/classifier.py                                        # one
    python examples/classifier.py --replicas 4                           # four, in turns in this process
    thinwire run examples/classifier.py --ranks 4                        # four processes
    thinwire run examples/classifier.py --ranks 4 --transport simulated  # four simulated in one process
    thinwire run examples/classifier.py --ranks 4 --method adacomp       # fewer bytes
    thinwire run examples/classifier.py --ranks 4 -- --checkpoint runs/digits

The three ways to run four replicas end with the same digest: the same model to the last bit. One replica, which takes
all examples of a step in one batch, ends with the same model up to the rounding of sums. The last command saves
checkpoints: start it again after an interruption, and it continues.
"""

import argparse
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thinwire
from thinwire import Context

BATCH, TEST_IMAGES = 120, 360  # the batch is over all replicas
DIGITS = Path(thinwire.__file__).parent / "lab" / "data" / "digits.npz"  # 1,797 images of 8 x 8 pixels

Batch = tuple[Tensor, Tensor]


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
    )


def digest(model: nn.Module) -> str:
    """A fingerprint of all parameters, which differs if a single bit does."""
    return sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()[:12]


def digits() -> tuple[Batch, Batch]:
    """Training and test images, [count, channels, height, width], with their labels."""
    with np.load(DIGITS) as stored:
        images, labels = torch.from_numpy(stored["images"]), torch.from_numpy(stored["labels"]).long()
    images = images[..., None].permute(0, 3, 1, 2) / 16  # channels last in memory: faster on CPUs
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(20260101))
    test, training = order.split([TEST_IMAGES, len(order) - TEST_IMAGES])
    return (images[training], labels[training]), (images[test], labels[test])


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--replicas", type=int, help="default: the number of launched processes")
parser.add_argument("--checkpoint", metavar="DIR", help="save here every 10 steps, and continue from it")
args = parser.parse_args()

repl = thinwire.Replicator("dense", replicas=args.replicas, seed=1)
model = cnn().to(repl.context.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer = repl.wrap(model, optimizer)  # copies the weights of the first replica to all
handle = repl.handles[0]  # of the wrapped model
training, test = digits()


def batch_of(examples: Batch, chosen: Tensor) -> Batch:
    images, labels = (part[chosen].to(repl.context.device) for part in examples)
    return images.contiguous(memory_format=torch.channels_last), labels


def input_fn(ctx: Context) -> Iterator[Batch]:
    """This replica's part of each batch: the order of the images comes from one seed, so all replicas have the same."""
    size, order = ctx.per_replica_batch_size(BATCH), torch.Generator().manual_seed(1)
    while True:
        for chosen in torch.randperm(len(training[1]), generator=order).split(BATCH):
            if len(chosen) == BATCH:
                yield batch_of(training, chosen[ctx.rank * size :][:size])


def step_fn(ctx: Context, batch: Batch) -> Tensor:
    """One step of one replica; replicas exchange when the optimizer steps."""
    images, labels = batch
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    handle.report_loss(loss)  # needed by methods that follow the best replica
    optimizer.step()
    return ctx.all_mean(loss)


@torch.no_grad()
def accuracy(ctx: Context, evaluated: nn.Module) -> float:
    """Over all test images. The parts of replicas may differ by an image, so each is weighted by its size."""
    images, labels = batch_of(test, torch.arange(ctx.rank, len(test[1]), ctx.num_replicas))
    correct = (evaluated.eval()(images).argmax(1) == labels).double().mean()
    return float(ctx.weighted_mean(correct, weight=len(labels)))


every = 10 if args.checkpoint else None
losses = repl.run(step_fn, input_fn, args.steps, checkpoint=args.checkpoint, every=every)
mean = handle.average()  # with some methods, replicas differ
reached = accuracy(repl.context, mean)
if repl.rank == 0:
    progress = f"loss {losses[0]:.3f} to {losses[-1]:.3f}" if losses else "no steps left"
    sent = f"payload {handle.meter.payload_bytes:,} bytes, link {handle.meter.link_bytes:,} bytes"
    result = f"{progress}, accuracy {reached:.4f}, {sent}, digest {digest(mean)}"
    print(f"{repl.method}, replicas {repl.num_replicas}: {result}")
