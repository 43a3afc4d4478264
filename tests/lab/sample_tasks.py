"""Tasks that go wrong in a known way, as a user's own could: `tests/lab/sample_tasks.py:Name`."""

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
    """Nothing wrong: few parameters, few examples."""

    batch = 16
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=1, training=160, test=50),
        "plateau": Budget(epochs=1, training=160, test=50, validation=40, evaluations=4),
        "full": Budget(epochs=2),
    }

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU(), nn.Linear(80, 10))


class RandomState(Tiny):
    """A model that draws as it goes."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.Dropout(0.5), nn.ReLU(), nn.Linear(80, 10))


class Diverges(Tiny):
    """Its loss is not a number from the third step on."""

    def __init__(self) -> None:
        self.steps = 0

    def adjust(self, model: nn.Module) -> None:
        self.steps += 1
        if self.steps == 2:
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)


class DivergesOnce(Diverges):
    """Diverges while there is a file of the name in DIVERGE_WHILE, and removes it then."""

    def adjust(self, model: nn.Module) -> None:
        reason = Path(os.environ["DIVERGE_WHILE"])
        if reason.exists():
            super().adjust(model)
            if self.steps == 2:
                reason.unlink()


class Dies(Tiny):
    """Rank 1 is killed in the third step, as a machine that runs out of memory would do."""

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


class DrawsLater(Tiny):
    """Draws from the third step on."""

    def __init__(self) -> None:
        self.steps = 0

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        self.steps += 1
        if self.steps > 6:
            inputs = inputs + torch.randn(inputs.shape)
        return super().loss(model, inputs, targets)


class Exchanges(Tiny):
    """Prints in between."""

    def adjust(self, model: nn.Module) -> None:
        print("clipped nothing")


class NoSmall(Workload):
    """It has no small budget."""

    batch = 4
    budgets: Mapping[str, Budget] = {"full": Budget(epochs=1)}
    load, model, optimizer = Tiny.load, Tiny.model, Tiny.optimizer


class Slow(Tiny):
    """Takes its time: 20 ms a step and rank."""

    def adjust(self, model: nn.Module) -> None:
        time.sleep(0.02)
