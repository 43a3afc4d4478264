import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from thinwire.lab.tasks.datasets.text import Text
from thinwire.lab.tasks.workload import EVALUATION_BATCH
from thinwire.lab.tasks.workloads import named
from thinwire.lab.tasks.workloads.characters import CHARACTERS

every_model = pytest.mark.parametrize("name", ["shakespeare-lstm", "shakespeare-gpt"])


class ConstantScores(nn.Module):
    """Gives the same scores at every position."""

    def __init__(self):
        super().__init__()
        self.scores = torch.randn(CHARACTERS, generator=torch.Generator().manual_seed(0))

    def forward(self, text):
        return self.scores.expand(*text.shape, CHARACTERS)


def test_bits_are_the_mean_over_all_characters_with_a_smaller_last_batch():
    numbers = np.random.default_rng(0).integers(0, CHARACTERS, 64 * (EVALUATION_BATCH + 3) + 1, np.uint8)
    examples = EVALUATION_BATCH + 2
    metrics = named("shakespeare-lstm").evaluate(ConstantScores(), Text(numbers, 64), examples)
    targets = torch.tensor(numbers[1 : 64 * examples + 1]).long()
    expected = float(-F.log_softmax(ConstantScores().scores, 0)[targets].mean())
    assert metrics["test_loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["test_bits_per_character"] == pytest.approx(expected / math.log(2), rel=1e-5)


@every_model
def test_a_model_does_not_look_ahead(name):
    torch.manual_seed(0)
    model = named(name).model().eval()
    text = torch.randint(CHARACTERS, (1, 64))
    other = text.clone()
    other[0, 40:] = (other[0, 40:] + 1) % CHARACTERS
    with torch.no_grad():
        difference = (model(text) - model(other)).abs().amax((0, 2))
    assert difference[:40].max() < 1e-6
    assert difference[40:].min() > 1e-6


@every_model
def test_gradients_are_clipped_by_their_norm(name):
    task = named(name)
    torch.manual_seed(0)
    model = task.model()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    task.adjust(model)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert float(norm) == pytest.approx({"shakespeare-lstm": 5.0, "shakespeare-gpt": 1.0}[name], rel=1e-3)
