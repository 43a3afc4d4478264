"""The interface of a task: its data, its model, how to train and how to evaluate it (docs/workloads.md)."""

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
VALIDATION_SEED = 0  # for sampling the validation examples


class Split(Protocol):
    """Examples, by index."""

    @property
    def labels(self) -> Tensor | None:
        """The class of each example, to give ranks skewed shares; None if examples have no class."""

    def __len__(self) -> int: ...

    def batch(self, chosen: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """The inputs and targets of these examples; augmented at random if there is a generator."""


class Part:
    """Some examples of a split."""

    def __init__(self, split: Split, chosen: Tensor) -> None:
        self._split, self._chosen = split, chosen

    @property
    def labels(self) -> Tensor | None:
        return None if self._split.labels is None else self._split.labels[self._chosen]

    def __len__(self) -> int:
        return len(self._chosen)

    def batch(self, chosen: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        return self._split.batch(self._chosen[chosen], generator)


class Budget(NamedTuple):
    """How long to train a task, and on how many examples."""

    epochs: float
    training: int | None = None  # examples to use; None: all
    test: int | None = None
    validation: int | None = None  # examples reserved from training, to select the best model
    evaluations: int = 10  # over the run
    warmup: float = 0.0  # fraction of the steps over which the rate rises linearly, on top of the schedule


class Workload(ABC):
    """A training task, the same for every method and any number of ranks."""

    batch: int  # examples per step, over all ranks
    # "small" takes minutes on two cores, "plateau" trains to convergence in an hour, "full" is the paper's.
    budgets: Mapping[str, Budget]
    metric: str = "test_accuracy"  # for comparing methods: one of those that `evaluate` returns
    better: str = "higher"  # or "lower"

    @abstractmethod
    def load(self, folder: Path | None) -> tuple[Split, Split]:
        """The training and the test data, from the folder that the user keeps data sets in."""

    def hold_back(self, training: Split, count: int, folder: Path | None) -> tuple[Split, Split]:
        """The remaining training examples, and `count` validation examples: the same ones in every run."""
        order = torch.randperm(len(training), generator=torch.Generator().manual_seed(VALIDATION_SEED))
        validation = order[:count].sort().values
        return Part(training, order[count:].sort().values), Part(training, validation)

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model; its weights come from torch's global generator, which the lab seeds."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> Optimizer: ...

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        """The schedule of the learning rate over `steps` steps; constant by default."""
        return LambdaLR(optimizer, lambda _: 1.0)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch: by default cross-entropy, with the classes in the second dimension."""
        return F.cross_entropy(model(inputs), targets)

    def adjust(self, model: nn.Module) -> None:  # noqa: B027  # most tasks do not need it
        """Called between the exchange of gradients and the optimizer's step: the place to clip them."""

    @torch.no_grad()
    def evaluate(self, model: nn.Module, test: Split, examples: int) -> dict[str, float]:
        """The metrics of a model in eval mode on the first `examples` test examples: by default accuracy and loss."""
        correct, loss, counted = 0, 0.0, 0
        for chosen in torch.split(torch.arange(examples), EVALUATION_BATCH):
            inputs, targets = test.batch(chosen, None)
            scores = model(inputs)
            correct += int((scores.argmax(1) == targets).sum())
            loss += float(F.cross_entropy(scores, targets, reduction="sum"))
            counted += targets.numel()
        return {"test_accuracy": correct / counted, "test_loss": loss / counted}
