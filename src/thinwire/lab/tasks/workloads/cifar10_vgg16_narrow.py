"""A VGG-16 a quarter as wide as usual on CIFAR-10, with the recipe of short trainings."""

from collections.abc import Mapping

from torch import nn

from thinwire.lab.tasks.models.vgg import vgg16
from thinwire.lab.tasks.workload import Budget
from thinwire.lab.tasks.workloads.short_cifar10 import ShortCifar10

WIDTH = 16


class Cifar10NarrowVGG16(ShortCifar10):
    """Thirteen narrow convolutions in a row."""

    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=2, test=2000),
        "plateau": Budget(epochs=20, validation=5000, evaluations=8),
        "full": Budget(epochs=160),
    }

    def model(self) -> nn.Module:
        return vgg16(WIDTH)
