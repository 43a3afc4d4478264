"""A text in windows of equal length; the targets are the inputs shifted by one character."""

import torch
from torch import Generator, Tensor

from thinwire.lab.tasks.datasets.files import Array


class Text:
    """Examples that are windows of a text; they have no classes."""

    labels: Tensor | None = None

    def __init__(self, numbers: Array | Tensor, window: int) -> None:
        self.numbers = torch.as_tensor(numbers, dtype=torch.int64)
        self.window = window

    def __len__(self) -> int:
        return (len(self.numbers) - 1) // self.window

    def cut(self, windows: int) -> tuple["Text", "Text"]:
        """Split the text before its last `windows` windows."""
        at = len(self.numbers) - 1 - windows * self.window
        return Text(self.numbers[: at + 1], self.window), Text(self.numbers[at:], self.window)

    def batch(self, chosen: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        starts = chosen * self.window
        if generator is not None:
            # Random starts, so that the borders between windows differ in every epoch.
            starts = starts + torch.randint(self.window, starts.shape, generator=generator)
            starts = starts.clamp(max=len(self.numbers) - 1 - self.window)
        windows = self.numbers[starts[:, None] + torch.arange(self.window + 1)]
        return windows[:, :-1], windows[:, 1:]
