"""ResNet-9 on CIFAR-10, three eighths as wide as in Page's DAWNBench entry (2019), with the recipe of that entry."""

from collections.abc import Mapping

from torch import nn

from thinwire.lab.tasks.models.resnet9 import resnet9
from thinwire.lab.tasks.workload import Budget
from thinwire.lab.tasks.workloads.short_cifar10 import ShortCifar10

WIDTH = 24


class Cifar10ResNet9(ShortCifar10):
    """A shallow, narrow residual network that learns in few epochs."""

    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=2, test=2000),
        "plateau": Budget(epochs=18, validation=5000, evaluations=8),
        "full": Budget(epochs=60),
    }

    def model(self) -> nn.Module:
        return resnet9(WIDTH)
