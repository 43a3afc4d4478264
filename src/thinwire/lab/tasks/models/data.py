"""Random training data of the right shape, for models whose gradients matter more than their accuracy."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

# Called with (generator, batch size); returns the inputs and the labels.
Sample = Callable[[Generator, int], tuple[Tensor, Tensor]]


def images(channels: int, side: int, classes: int) -> Sample:
    """A sampler of normally distributed square images, each with a random class."""

    def sample(generator: Generator, batch: int) -> tuple[Tensor, Tensor]:
        pixels = torch.randn(batch, channels, side, side, generator=generator)
        labels = torch.randint(classes, (batch,), generator=generator)
        return pixels, labels

    return sample


def text(words: int, steps: int) -> Sample:
    """A sampler of random word sequences; the labels are the inputs shifted by one step."""

    def sample(generator: Generator, batch: int) -> tuple[Tensor, Tensor]:
        sequence = torch.randint(words, (batch, steps + 1), generator=generator)
        return sequence[:, :-1], sequence[:, 1:]

    return sample
