"""Labeled images, normalized and augmented on access."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from thinwire.lab.tasks.datasets.files import Array


class Images:
    """Examples of a small image and its class."""

    def __init__(
        self,
        pixels: Array,  # uint8 [count, height, width, channels]; may be memory-mapped
        labels: Array,
        mean: Sequence[float],  # per channel, in the unit of the pixels
        deviation: Sequence[float],
        shift: int = 0,  # in training: the largest random shift, in pixels; the border has the mean color
        flip: bool = False,  # in training: mirror half of the images
    ) -> None:
        self.pixels, self.shift, self.flip = pixels, shift, flip
        self.labels = torch.tensor(labels, dtype=torch.int64)
        self.mean = torch.tensor(mean).view(1, -1, 1, 1)
        self.scale = torch.tensor(deviation).reciprocal().view(1, -1, 1, 1)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, chosen: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        """Images [batch, channels, height, width] in torch's channels-last layout: convolutions on CPUs are faster."""
        images = torch.from_numpy(self.pixels[chosen.numpy()]).permute(0, 3, 1, 2).float()
        images = images.sub_(self.mean).mul_(self.scale)
        if generator is not None and (self.shift or self.flip):
            images = self.moved(images, generator)
        return images.contiguous(memory_format=torch.channels_last), self.labels[chosen]

    def moved(self, images: Tensor, generator: Generator) -> Tensor:
        """Shift each image at random, and mirror some, with one gather for all images."""
        count, channels, height, width = images.shape
        top, left = torch.randint(2 * self.shift + 1, (2, count, 1), generator=generator)
        rows = top + torch.arange(height)
        columns = left + torch.arange(width)
        if self.flip:
            mirrored = torch.randint(2, (count, 1), generator=generator, dtype=torch.bool)
            columns = torch.where(mirrored, columns.flip(1), columns)
        framed = F.pad(images, (self.shift,) * 4)
        positions = rows[:, :, None] * framed.shape[3] + columns[:, None, :]
        positions = positions.view(count, 1, height * width).expand(-1, channels, -1)
        return framed.flatten(2).gather(2, positions).view_as(images)
