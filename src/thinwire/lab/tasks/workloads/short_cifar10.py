"""The recipe of short trainings on CIFAR-10: Page's for DAWNBench (2019).

As there: SGD with momentum, a rate that rises and falls linearly, label smoothing, images shifted by up to 4 pixels and
mirrored. Unlike there: momentum is not Nesterov's, which some methods cannot replace; no cutout, float32, smaller
batches.
"""

from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.datasets import cifar10
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.workload import Workload
from thinwire.lab.tasks.workloads.schedules import one_cycle

SMOOTHING = 0.1  # of labels


class ShortCifar10(Workload):
    """CIFAR-10 to convergence in few epochs; a subclass defines the model."""

    batch = 128
    lr = 0.1  # at its peak

    def load(self, folder: Path | None) -> tuple[Images, Images]:
        return cifar10.load(folder)

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=self.lr, momentum=0.9, weight_decay=5e-4, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return one_cycle(optimizer, steps)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs), targets, label_smoothing=SMOOTHING)
