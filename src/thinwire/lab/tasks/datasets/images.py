"""Labeled images, normalized and shifted as they are taken."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from thinwire.lab.tasks.datasets.files import Array


class Images:
    """Examples that are a small image and its class."""

    def __init__(
        self,
        pixels: Array,  # uint8 [count, height, width, channels]; may be a file mapped into memory
        labels: Array,
        mean: Sequence[float],  # of each channel, in the unit of the pixels
        deviation: Sequence[float],
        shift: int = 0,  # when training, an image is moved by up to so many pixels, and what comes in is the mean
        flip: bool = False,  # when training, half of the images are mirrored
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
        """Each image at its own random place in a larger frame, mirrored or not: one gather for all of them."""
        count, channels, height, width = images.shape
        top, left = torch.randint(2 * self.shift + 1, (2, count, 1), generator=generator)
        rows = top + torch.arange(height)
        columns = left + torch.arange(width)
        if self.flip:
            mirrored = torch.randint(2, (count, 1), generator=generator, dtype=torch.bool)
            columns = torch.where(mirrored, columns.flip(1), columns)
        framed = F.pad(images, (self.shift,) * 4)
        places = rows[:, :, None] * framed.shape[3] + columns[:, None, :]
        places = places.view(count, 1, height * width).expand(-1, channels, -1)
        return framed.flatten(2).gather(2, places).view_as(images)
