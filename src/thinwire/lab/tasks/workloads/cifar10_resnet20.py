"""ResNet-20 on CIFAR-10, as in "Deep Residual Learning for Image Recognition" (He et al., 2016), section 4.2.

As there: the model, batches of 128, the optimizer, the rate divided by ten at half and at three quarters, images
shifted by up to 4 pixels and mirrored. The 164 epochs are its 64,000 steps. Unlike there: channels are normalized
by their mean and deviation, not pixels by their mean, and all 50,000 images are trained on from the start.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.datasets import cifar10
from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.models.resnet import resnet20
from thinwire.lab.tasks.workload import Budget, Workload
from thinwire.lab.tasks.workloads.schedules import stepped


class Cifar10ResNet20(Workload):
    """The network that most papers on gradient compression begin with."""

    batch = 128
    budgets: Mapping[str, Budget] = {"small": Budget(epochs=1.5, test=2000), "full": Budget(epochs=164)}

    def load(self, folder: Path | None) -> tuple[Images, Images]:
        return cifar10.load(folder)

    def model(self) -> nn.Module:
        return resnet20()

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return stepped(optimizer, steps, at=(0.5, 0.75))
