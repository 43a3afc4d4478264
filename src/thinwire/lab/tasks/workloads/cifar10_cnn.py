"""A network of three convolutions on CIFAR-10, which is one of the tasks of the AdaComp paper (Chen et al., 2018).

The layers are those of Caffe's "CIFAR-10 full" without its response normalization. The optimizer and its schedule are
chosen here: Caffe's are for pixels that are not normalized.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.datasets import cifar10
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.workload import Budget, Workload
from thinwire.lab.tasks.workloads.schedules import stepped


class Cifar10CNN(Workload):
    """Three convolutions of 5 x 5 and a dense layer, no batch norm."""

    batch = 128
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=5, test=2000),
        "plateau": Budget(epochs=24, validation=5000, warmup=0.05, evaluations=8),
        "full": Budget(epochs=140),
    }

    def load(self, folder: Path | None) -> tuple[Images, Images]:
        return cifar10.load(folder)

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 32, 5, padding=2),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            nn.ReLU(),
            nn.Conv2d(32, 32, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(3, stride=2, ceil_mode=True),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(3, stride=2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 10),
        )

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return stepped(optimizer, steps, at=(0.6, 0.85))
