"""The base class of tasks that predict the next character."""

import math
from abc import abstractmethod
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinwire.lab.tasks.datasets import shakespeare
from thinwire.lab.tasks.datasets.text import Text
from thinwire.lab.tasks.workload import EVALUATION_BATCH, Split, Workload

CHARACTERS = len(shakespeare.CHARACTERS)


class CharacterModel(Workload):
    """Predict each next character of Tiny Shakespeare; the model gives scores [batch, steps, characters]."""

    metric = "test_bits_per_character"
    better = "lower"

    @property
    @abstractmethod
    def window(self) -> int:
        """The number of characters of an example."""

    def load(self, folder: Path | None) -> tuple[Text, Text]:
        return shakespeare.load(folder, self.window)

    def hold_back(self, training: Split, count: int, folder: Path | None) -> tuple[Split, Split]:
        """Reserve the end of the text: windows in the middle would overlap with training windows on both sides."""
        assert isinstance(training, Text)
        return training.cut(count)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, test: Split, examples: int) -> dict[str, float]:
        loss, counted = 0.0, 0
        for chosen in torch.split(torch.arange(examples), EVALUATION_BATCH):
            inputs, targets = test.batch(chosen, None)
            loss += float(self.loss(model, inputs, targets)) * targets.numel()
            counted += targets.numel()
        return {"test_loss": loss / counted, "test_bits_per_character": loss / counted / math.log(2)}
