"""ResNet-18 on CIFAR-10, as in the PowerSGD paper (Vogels et al., 2019).

As there: the model, momentum, weight decay on all but batch norm, the rate divided by ten after 150 and 250 of 300
epochs, images shifted and mirrored. Unlike there: batches of 64 over all ranks, not of 128 per rank, and a rate for
them that needs no warm-up and makes progress within the small budget.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.datasets import cifar10
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.models.resnet import resnet18
from thinwire.lab.tasks.workload import Budget, Workload
from thinwire.lab.tasks.workloads.schedules import stepped


class Cifar10ResNet18(Workload):
    """A wide residual network."""

    batch = 64
    budgets: Mapping[str, Budget] = {"small": Budget(epochs=2, training=4000, test=500), "full": Budget(epochs=300)}

    def load(self, folder: Path | None) -> tuple[Images, Images]:
        return cifar10.load(folder)

    def model(self) -> nn.Module:
        return resnet18()

    def optimizer(self, model: nn.Module) -> Optimizer:
        normed = {p for module in model.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()}
        groups = [
            {"params": [p for p in model.parameters() if p not in normed], "weight_decay": 1e-4},
            {"params": [p for p in model.parameters() if p in normed], "weight_decay": 0.0},
        ]
        return SGD(groups, lr=0.02, momentum=0.9, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return stepped(optimizer, steps, at=(150 / 300, 250 / 300))
