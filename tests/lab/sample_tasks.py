"""User tasks for tests, most of which fail in a known way: `tests/lab/sample_tasks.py:Name`."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from thinwire.lab.tasks.workload import Budget, Workload
from thinwire.lab.tasks.workloads.digits_cnn import DigitsCNN

HERE = Path(__file__)


def called(name: str) -> str:
    return f"{HERE}:{name}"


class Tiny(DigitsCNN):
    """A task without failures, with few parameters and examples."""

    batch = 16
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=1, training=160, test=50),
        "plateau": Budget(epochs=1, training=160, test=50, validation=40, evaluations=4),
        "full": Budget(epochs=2),
    }

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU(), nn.Linear(80, 10))


class RandomState(Tiny):
    """A model that consumes random numbers in every step."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.Dropout(0.5), nn.ReLU(), nn.Linear(80, 10))


class Diverges(Tiny):
    """Its loss is NaN from the third step on."""

    def __init__(self) -> None:
        self.steps = 0

    def adjust(self, model: nn.Module) -> None:
        self.steps += 1
        if self.steps == 2:
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)


class DivergesOnce(Diverges):
    """Diverges if the file named by DIVERGE_WHILE exists, and then removes it."""

    def adjust(self, model: nn.Module) -> None:
        flag = Path(os.environ["DIVERGE_WHILE"])
        if flag.exists():
            super().adjust(model)
            if self.steps == 2:
                flag.unlink()


class Dies(Tiny):
    """Rank 1 is killed in the third step, as by a machine without free memory."""

    def __init__(self) -> None:
        self.steps = 0

    def adjust(self, model: nn.Module) -> None:
        self.steps += 1
        if self.steps == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


class Breaks(Tiny):
    """Rank 1 raises in the third step."""

    def __init__(self) -> None:
        self.steps = 0

    def adjust(self, model: nn.Module) -> None:
        self.steps += 1
        if self.steps == 3 and dist.get_rank() == 1:
            raise RuntimeError("the third step is too much")


class RandomLater(Tiny):
    """Consumes random numbers from the third step on."""

    def __init__(self) -> None:
        self.steps = 0

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        self.steps += 1
        if self.steps > 6:
            inputs = inputs + torch.randn(inputs.shape)
        return super().loss(model, inputs, targets)


class Prints(Tiny):
    """Prints in every step."""

    def adjust(self, model: nn.Module) -> None:
        print("clipped nothing")


class NoSmall(Workload):
    """A task without a small budget."""

    batch = 4
    budgets: Mapping[str, Budget] = {"full": Budget(epochs=1)}
    load, model, optimizer = Tiny.load, Tiny.model, Tiny.optimizer


class Slow(Tiny):
    """Sleeps for 20 ms per step and rank."""

    def adjust(self, model: nn.Module) -> None:
        time.sleep(0.02)
