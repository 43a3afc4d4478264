"""Training examples per second of four simulated ranks, two of which compute at a time, as in the lab.

Before: images in torch's default layout, optimizers that loop over parameters. After: the current tasks, with images in
the channels-last layout and fused optimizers.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.rows import Row, at_least
from benchmarks.timing import interleaved, threads_of_torch
from thinwire.lab.runner import machine
from thinwire.lab.tasks.datasets.camvid import CLASSES, HEIGHT, WIDTH, Scenes
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.datasets.text import Text
from thinwire.lab.tasks.workload import Split, Workload
from thinwire.lab.tasks.workloads import named
from thinwire.lab.tasks.workloads.characters import CHARACTERS, CharacterModel

RANKS, STEPS, REPEATS = 4, 2, 4
TARGET = 1.0  # for images: none may be slower than before; texts have no layout
TASKS = (
    *("mnist-cnn", "cifar10-cnn", "cifar10-resnet9", "cifar10-vgg16-narrow"),
    *("shakespeare-lstm", "shakespeare-gpt", "camvid-pspnet"),
)
Layout = Callable[[Tensor], Tensor]


def run() -> list[Row]:
    with threads_of_torch(1):
        return [_row(name) for name in TASKS]


def _row(name: str) -> Row:
    task = named(name)
    data = _data(name, task)
    variants: dict[str, Callable[[], object]] = {
        "before": _steps(task, data, lambda inputs: inputs.contiguous(), fused=False),
        "after": _steps(task, data, lambda inputs: inputs, fused=True),
    }
    for variant in variants.values():
        variant()  # layers choose their algorithms
    seconds = interleaved(variants, REPEATS)
    before, after = (STEPS * task.batch / seconds[variant] for variant in ("before", "after"))
    verdict = "" if isinstance(task, CharacterModel) else at_least(after / before, TARGET)
    return Row(f"{name}: {before:,.0f} examples/s before, {after:,.0f} after", after / before, verdict)


def _steps(task: Workload, data: Split, layout: Layout, fused: bool) -> Callable[[], object]:
    torch.manual_seed(0)
    model = task.model().train()
    ranks = [_rank(deepcopy(model), task, data, layout, fused) for _ in range(RANKS)]

    def steps() -> None:
        with ThreadPoolExecutor(machine.cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for _ in range(STEPS):
                list(pool.map(lambda rank: rank(), ranks))

    return steps


def _rank(model: nn.Module, task: Workload, data: Split, layout: Layout, fused: bool) -> Callable[[], None]:
    optimizer: Optimizer = task.optimizer(model)
    for group in optimizer.param_groups:
        group.update(fused=fused, foreach=not fused, lr=1e-4)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.arange(task.batch // RANKS)

    def step() -> None:
        inputs, targets = data.batch(chosen, generator)
        optimizer.zero_grad()
        task.loss(model, layout(inputs), targets).backward()
        task.adjust(model)
        optimizer.step()

    return step


def _data(name: str, task: Workload) -> Split:
    """Random examples of the task's shape."""
    generator, count = np.random.default_rng(0), task.batch // RANKS
    if isinstance(task, CharacterModel):
        return Text(generator.integers(0, CHARACTERS, (count + 1) * task.window + 1), task.window)
    if name.startswith("camvid"):
        photos = generator.integers(0, 256, (count, HEIGHT, WIDTH, 3), np.uint8)
        return Scenes(photos, generator.integers(0, CLASSES, (count, HEIGHT, WIDTH), np.uint8))
    side, channels = (28, 1) if name.startswith("mnist") else (32, 3)
    pixels = generator.integers(0, 256, (count, side, side, channels), np.uint8)
    augmented = {"shift": 4, "flip": True} if channels == 3 else {}
    return Images(pixels, generator.integers(0, 10, count), [128] * channels, [64] * channels, **augmented)
