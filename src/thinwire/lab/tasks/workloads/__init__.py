"""The named tasks, and tasks from a user's file."""

from difflib import get_close_matches
from typing import Any

from rich.table import Table

from thinwire.lab.tasks.workload import Workload
from thinwire.lab.tasks.workloads import listing, user_task
from thinwire.lab.tasks.workloads.camvid_pspnet import CamvidPSPNet
from thinwire.lab.tasks.workloads.cifar10_cnn import Cifar10CNN
from thinwire.lab.tasks.workloads.cifar10_resnet9 import Cifar10ResNet9
from thinwire.lab.tasks.workloads.cifar10_resnet18 import Cifar10ResNet18
from thinwire.lab.tasks.workloads.cifar10_resnet20 import Cifar10ResNet20
from thinwire.lab.tasks.workloads.cifar10_vgg16 import Cifar10VGG16
from thinwire.lab.tasks.workloads.cifar10_vgg16_narrow import Cifar10NarrowVGG16
from thinwire.lab.tasks.workloads.digits_cnn import DigitsCNN
from thinwire.lab.tasks.workloads.mnist_cnn import MnistCNN
from thinwire.lab.tasks.workloads.shakespeare_gpt import ShakespeareGPT
from thinwire.lab.tasks.workloads.shakespeare_lstm import ShakespeareLSTM

__all__ = ["WORKLOADS", "listed", "named", "shown"]

WORKLOADS: dict[str, Workload] = {
    "digits-cnn": DigitsCNN(),
    "mnist-cnn": MnistCNN(),
    "cifar10-cnn": Cifar10CNN(),
    "cifar10-resnet9": Cifar10ResNet9(),
    "cifar10-resnet20": Cifar10ResNet20(),
    "cifar10-resnet18": Cifar10ResNet18(),
    "cifar10-vgg16": Cifar10VGG16(),
    "cifar10-vgg16-narrow": Cifar10NarrowVGG16(),
    "shakespeare-lstm": ShakespeareLSTM(),
    "shakespeare-gpt": ShakespeareGPT(),
    "camvid-pspnet": CamvidPSPNet(),
}


def named(name: str) -> Workload:
    """The task of this name, or the one called `Name` in the user's `path/to/file.py:Name`."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    if ".py" in name:
        return user_task.task(name)
    nearest = get_close_matches(name.lower(), WORKLOADS, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise ValueError(
        f"unknown workload {name!r}{hint}; known workloads: {', '.join(WORKLOADS)}, "
        "and path/to/file.py:Name for one of your own"
    )


def listed() -> dict[str, dict[str, Any]]:
    """The properties of all named tasks, by name."""
    return listing.described(WORKLOADS)


def shown() -> Table:
    """A table of all named tasks."""
    return listing.table(WORKLOADS)
