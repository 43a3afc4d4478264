"""A network of two convolutions on MNIST, which is one of the tasks of the AdaComp paper (Chen et al., 2018).

The layers, the optimizer and the schedule are those of the LeNet that comes with Caffe.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from thinwire.lab.tasks.datasets import mnist
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.workload import Budget, Workload


class MnistCNN(Workload):
    """Two convolutions of 5 x 5 and two dense layers; nearly all parameters are in one matrix."""

    batch = 128
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=4),
        "plateau": Budget(epochs=12, validation=5000, warmup=0.05, evaluations=12),
        "full": Budget(epochs=100),
    }

    def load(self, folder: Path | None) -> tuple[Images, Images]:
        return mnist.load(folder)

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 20, 5),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(50 * 4 * 4, 500),
            nn.ReLU(),
            nn.Linear(500, 10),
        )

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        # Caffe's "inv" policy.
        return LambdaLR(optimizer, lambda step: (1 + 1e-4 * step) ** -0.75)
