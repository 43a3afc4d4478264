"""Random training data of the right shape, for models whose gradients matter more than their accuracy."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

# Called with (generator, batch size); gives the inputs and the labels.
Draw = Callable[[Generator, int], tuple[Tensor, Tensor]]


def images(channels: int, side: int, classes: int) -> Draw:
    """Make a draw of normally distributed square images, each with a random class."""

    def draw(generator: Generator, batch: int) -> tuple[Tensor, Tensor]:
        pixels = torch.randn(batch, channels, side, side, generator=generator)
        labels = torch.randint(classes, (batch,), generator=generator)
        return pixels, labels

    return draw


def text(words: int, steps: int) -> Draw:
    """Make a draw of random word sequences, each labeled with itself one step ahead."""

    def draw(generator: Generator, batch: int) -> tuple[Tensor, Tensor]:
        sequence = torch.randint(words, (batch, steps + 1), generator=generator)
        return sequence[:, :-1], sequence[:, 1:]

    return draw
