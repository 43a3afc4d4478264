"""Train a small CNN to read handwritten digits: the script knows one replica, the command says how many there are.

    python examples/classifier.py                                        # one
    python examples/classifier.py --replicas 4                           # four, taking turns in this process
    thinwire run examples/classifier.py --ranks 4                        # four processes
    thinwire run examples/classifier.py --ranks 4 --transport simulated  # four in one process, again
    thinwire run examples/classifier.py --ranks 4 --method adacomp       # saying less to each other
    thinwire run examples/classifier.py --ranks 4 -- --checkpoint runs/digits

The three ways to have four replicas end with the same digest: the same model to the last bit. One replica, which takes
all examples of a step by itself, ends with the same model but for the rounding of its sums. The last command, stopped
and given again, goes on where it was.
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
    """A fingerprint of all parameters: it is another if a single bit is."""
    return sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()[:12]


def digits() -> tuple[Batch, Batch]:
    """Training and test images, [count, channels, height, width], with their labels."""
    with np.load(DIGITS) as stored:
        images, labels = torch.from_numpy(stored["images"]), torch.from_numpy(stored["labels"]).long()
    images = images[..., None].permute(0, 3, 1, 2) / 16  # channels last in memory, which CPUs are faster with
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(20260101))
    test, training = order.split([TEST_IMAGES, len(order) - TEST_IMAGES])
    return (images[training], labels[training]), (images[test], labels[test])


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--replicas", type=int, help="by default, as many as were launched")
parser.add_argument("--checkpoint", metavar="DIR", help="save everything here every 10 steps, and go on from it")
args = parser.parse_args()

repl = thinwire.Replicator("dense", replicas=args.replicas, seed=1)
model = cnn().to(repl.context.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer = repl.wrap(model, optimizer)  # from here on, all replicas have the first one's weights
handle = repl.handles[0]  # of what was wrapped
training, test = digits()


def batch_of(examples: Batch, chosen: Tensor) -> Batch:
    images, labels = (part[chosen].to(repl.context.device) for part in examples)
    return images.contiguous(memory_format=torch.channels_last), labels


def input_fn(ctx: Context) -> Iterator[Batch]:
    """This replica's part of each batch: all know the order of the images, which is drawn from one seed."""
    size, order = ctx.per_replica_batch_size(BATCH), torch.Generator().manual_seed(1)
    while True:
        for chosen in torch.randperm(len(training[1]), generator=order).split(BATCH):
            if len(chosen) == BATCH:
                yield batch_of(training, chosen[ctx.rank * size :][:size])


def step_fn(ctx: Context, batch: Batch) -> Tensor:
    """One step of one replica; the method speaks as the optimizer steps."""
    images, labels = batch
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    handle.report_loss(loss)  # methods that follow the best replica ask for it
    optimizer.step()
    return ctx.all_mean(loss)


@torch.no_grad()
def accuracy(ctx: Context, judged: nn.Module) -> float:
    """Over all test images: parts may differ by an image, so each counts by its size."""
    images, labels = batch_of(test, torch.arange(ctx.rank, len(test[1]), ctx.num_replicas))
    correct = (judged.eval()(images).argmax(1) == labels).double().mean()
    return float(ctx.weighted_mean(correct, weight=len(labels)))


every = 10 if args.checkpoint else None
losses = repl.run(step_fn, input_fn, args.steps, checkpoint=args.checkpoint, every=every)
mean = handle.average()  # with some methods, replicas differ
found = accuracy(repl.context, mean)
if repl.rank == 0:
    course = f"loss {losses[0]:.3f} to {losses[-1]:.3f}" if losses else "nothing left to do"
    said = f"payload {handle.meter.payload_bytes:,} bytes, link {handle.meter.link_bytes:,} bytes"
    print(f"{repl.method}, replicas {repl.num_replicas}: {course}, accuracy {found:.4f}, {said}, digest {digest(mean)}")
