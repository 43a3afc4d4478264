"""VGG-16 on CIFAR-10, as in the LSGD paper (Teng et al., 2019).

As there: batches of 128, momentum, weight decay, one of its rates, divided by ten after about four fifths. Unlike
there: the model has batch norm, images are shifted as for the other CIFAR-10 tasks, and the length is in epochs.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.datasets import cifar10
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.models.vgg import vgg16
from thinwire.lab.tasks.workload import Budget, Workload
from thinwire.lab.tasks.workloads.schedules import stepped


class Cifar10VGG16(Workload):
    """Thirteen convolutions in a row, and the most parameters of all tasks."""

    batch = 128
    budgets: Mapping[str, Budget] = {"small": Budget(epochs=1, training=10_000, test=500), "full": Budget(epochs=160)}

    def load(self, folder: Path | None) -> tuple[Images, Images]:
        return cifar10.load(folder)

    def model(self) -> nn.Module:
        return vgg16()

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return stepped(optimizer, steps, at=(0.8,))
