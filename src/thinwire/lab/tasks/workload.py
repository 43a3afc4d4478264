"""What a task is to the lab: data, a model, how to train it and how to judge it (docs/workloads.md)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

EVALUATION_BATCH = 250
HELD_BACK = 0  # the seed that validation examples are drawn with


class Split(Protocol):
    """Examples, by number."""

    @property
    def labels(self) -> Tensor | None:
        """The class of each example, by which ranks can get skewed shares; None where examples have no class."""

    def __len__(self) -> int: ...

    def batch(self, chosen: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """The inputs and targets of these examples; augmented if there is a generator to draw from."""


class Part:
    """Some examples of a split."""

    def __init__(self, whole: Split, chosen: Tensor) -> None:
        self._whole, self._chosen = whole, chosen

    @property
    def labels(self) -> Tensor | None:
        return None if self._whole.labels is None else self._whole.labels[self._chosen]

    def __len__(self) -> int:
        return len(self._chosen)

    def batch(self, chosen: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        return self._whole.batch(self._chosen[chosen], generator)


class Budget(NamedTuple):
    """How much of a task to do."""

    epochs: float
    training: int | None = None  # examples to use; None: all
    test: int | None = None
    validation: int | None = None  # examples that are held back from training; the best model is chosen by them
    evaluations: int = 10  # over the run
    warmup: float = 0.0  # share of the steps over which the learning rate rises linearly, on top of the schedule


class Workload(ABC):
    """A task to train, the same for every method and any number of ranks."""

    batch: int  # examples a step, over all ranks
    # "small" takes minutes on two cores, "plateau" reaches the end of learning in an hour, "full" is the paper's.
    budgets: Mapping[str, Budget]
    metric: str = "test_accuracy"  # what methods are compared by: one of those that `evaluate` gives
    better: str = "higher"  # or "lower"

    @abstractmethod
    def load(self, folder: Path | None) -> tuple[Split, Split]:
        """The training and the test data, from the folder that the user keeps data sets in."""

    def hold_back(self, training: Split, count: int, folder: Path | None) -> tuple[Split, Split]:
        """What is left to train on, and `count` examples for validation: the same ones in every run."""
        order = torch.randperm(len(training), generator=torch.Generator().manual_seed(HELD_BACK))
        held = order[:count].sort().values
        return Part(training, order[count:].sort().values), Part(training, held)

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model; its weights come from torch's global generator, which the lab seeds."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> Optimizer: ...

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        """How the learning rate goes over so many steps; constant, if not said otherwise."""
        return LambdaLR(optimizer, lambda _: 1.0)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch: cross-entropy, if not said otherwise; classes are in the second dimension."""
        return F.cross_entropy(model(inputs), targets)

    def adjust(self, model: nn.Module) -> None:  # noqa: B027  # most tasks have nothing to do here
        """Called between the exchange of gradients and the optimizer's step: the place to clip them."""

    @torch.no_grad()
    def evaluate(self, model: nn.Module, test: Split, examples: int) -> dict[str, float]:
        """Judge a model (in eval mode) by the first so many test examples: accuracy and loss, if not said otherwise."""
        right, loss, counted = 0, 0.0, 0
        for chosen in torch.split(torch.arange(examples), EVALUATION_BATCH):
            inputs, targets = test.batch(chosen, None)
            scores = model(inputs)
            right += int((scores.argmax(1) == targets).sum())
            loss += float(F.cross_entropy(scores, targets, reduction="sum"))
            counted += targets.numel()
        return {"test_accuracy": right / counted, "test_loss": loss / counted}
