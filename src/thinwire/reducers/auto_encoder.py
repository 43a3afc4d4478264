"""A small convolutional auto-encoder over one long vector, as plain tensors: no module, no optimizer, no generator.

Its weights are one flat tensor, and so are its optimizer's moments, so that a state holds them like anything else. All
ranks that train it on the same numbers get the same bits, as long as they compute alike.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDE = 16  # entries that share a place in the code
CHANNELS = (1, 64, 128, 256, 64)  # of the encoder, each layer halving the length
BACK = (32, 64, 128, 32)  # of the decoder, each doubling it
SLOPE = 0.01  # of what is below zero
BETAS, EPSILON = (0.9, 0.999), 1e-8


class Trained(NamedTuple):
    """Weights, and what their optimizer remembers."""

    weights: Tensor
    mean: Tensor
    square: Tensor
    steps: int


class AutoEncoder(NamedTuple):
    """What it looks like: the code has so many channels at every sixteenth entry, `code / 16` numbers an entry."""

    code: int = 4
    extra: int = 0  # channels of the output layer beside the decoder's

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of weights and biases in their order."""
        encoder = [(out, into, 3) for into, out in pairwise(CHANNELS)] + [(self.code, CHANNELS[-1], 1)]
        decoder = [(into, out, 3) for into, out in pairwise((self.code, *BACK))]
        last = (1, BACK[-1] + self.extra, 1)
        outs = [shape[0] for shape in encoder] + [shape[1] for shape in decoder] + [1]
        weights = [*encoder, *decoder, last]
        return tuple(shape for pair in zip(weights, ((n,) for n in outs), strict=True) for shape in pair)

    @property
    def size(self) -> int:
        return sum(torch.Size(shape).numel() for shape in self.shapes)

    def begun(self, seed: int) -> Trained:
        """As torch's own layers begin: uniform, by the number of inputs; the same on every rank."""
        draw = torch.Generator().manual_seed(seed)
        pieces = []
        for weight, bias in zip(self.shapes[::2], self.shapes[1::2], strict=True):
            transposed = bias[0] != weight[0]
            inputs = (weight[1] if not transposed else weight[1]) * weight[2]
            bound = inputs**-0.5
            pieces += [
                torch.empty(torch.Size(s).numel()).uniform_(-bound, bound, generator=draw) for s in (weight, bias)
            ]
        flat = torch.cat(pieces)
        return Trained(flat, torch.zeros_like(flat), torch.zeros_like(flat), 0)

    def _layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        split = torch.split(weights, [torch.Size(shape).numel() for shape in self.shapes])
        parts = [piece.view(shape) for piece, shape in zip(split, self.shapes, strict=True)]
        return list(zip(parts[::2], parts[1::2], strict=True))

    def encode(self, weights: Tensor, x: Tensor) -> Tensor:
        """The codes of rows of any length: [rows, code, length / 16]."""
        layers = self._layers(weights)[: len(CHANNELS)]
        x = F.pad(x, (0, -x.shape[-1] % STRIDE)).unsqueeze(1)
        for weight, bias in layers[:-1]:
            x = F.leaky_relu(F.conv1d(x, weight, bias, stride=2, padding=1), SLOPE)
        weight, bias = layers[-1]
        return F.conv1d(x, weight, bias)

    def decode(self, weights: Tensor, code: Tensor, length: int, beside: Tensor | None = None) -> Tensor:
        """The rows that codes stand for."""
        *layers, last = self._layers(weights)[len(CHANNELS) :]
        x = code
        for weight, bias in layers:
            x = F.leaky_relu(F.conv_transpose1d(x, weight, bias, stride=2, padding=1, output_padding=1), SLOPE)
        x = x[..., :length]
        if beside is not None:
            x = torch.cat([x, beside.unsqueeze(1)], 1)
        return F.conv1d(x, *last).squeeze(1)


def learned(trained: Trained, gradient: Tensor, rate: float) -> Trained:
    """A step of Adam."""
    first, second = BETAS
    steps = trained.steps + 1
    mean = trained.mean.lerp(gradient, 1 - first)
    square = torch.addcmul(trained.square * second, gradient, gradient, value=1 - second)
    size = (square / (1 - second**steps)).sqrt_().add_(EPSILON)
    return Trained(trained.weights - rate / (1 - first**steps) * mean / size, mean, square, steps)
