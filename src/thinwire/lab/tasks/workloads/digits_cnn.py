"""A small network on the digits that come with the package: a training in seconds, without any data to fetch."""

from collections.abc import Mapping
from pathlib import Path

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.datasets import digits
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.workload import Budget, Workload
from thinwire.lab.tasks.workloads.schedules import cosine


class DigitsCNN(Workload):
    """Two convolutions and two dense layers."""

    batch = 128
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=16),
        "plateau": Budget(epochs=30, validation=150, warmup=0.05),
        "full": Budget(epochs=60),
    }

    def load(self, folder: Path | None) -> tuple[Images, Images]:
        return digits.load()

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return cosine(optimizer, steps)
