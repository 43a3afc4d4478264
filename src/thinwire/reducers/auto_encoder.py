"""A small convolutional auto-encoder over one long vector, as plain tensors: no module, no optimizer, no generator.

Its weights are one flat tensor, and so are its optimizer's moments, so that a state holds them like anything else. All
ranks that train it on the same numbers get the same bits, as long as they compute alike.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

PLACE = 16  # entries that share a place in the code
DOWN = (1, 64, 128, 256, 64)  # channels of the encoder, each layer halving the length
UP = (32, 64, 128, 32)  # of a decoder, each doubling it
SLOPE = 0.01  # of what is below zero
BETAS, EPSILON = (0.9, 0.999), 1e-8

OPTIMIZERS = ("adam", "sgd")


class Trained(NamedTuple):
    """Weights, and what their optimizer remembers."""

    weights: Tensor
    mean: Tensor
    square: Tensor
    steps: int


class Layer(NamedTuple):
    weight: tuple[int, ...]
    bias: int
    inputs: int  # that a number of its output is made of, as torch counts them for its first weights

    @property
    def size(self) -> int:
        return torch.Size(self.weight).numel() + self.bias


class AutoEncoder(NamedTuple):
    """What it looks like: one encoder, and a decoder for each who is to be told apart."""

    channels: int = 4  # of the code, which has a place for every 16 entries
    decoders: int = 1
    beside: bool = False  # whether a decoder's last layer sees, beside what it decodes, what is known of the entries

    @property
    def encoder(self) -> tuple[Layer, ...]:
        halving = [Layer((out, into, 3), out, 3 * into) for into, out in pairwise(DOWN)]
        return *halving, Layer((self.channels, DOWN[-1], 1), self.channels, DOWN[-1])

    @property
    def decoder(self) -> tuple[Layer, ...]:
        doubling = [Layer((into, out, 3), out, 3 * out) for into, out in pairwise((self.channels, *UP))]
        last = UP[-1] + self.beside
        return *doubling, Layer((1, last, 1), 1, last)

    @property
    def sizes(self) -> list[int]:
        """Of the encoder's weights, and of each decoder's: they follow one another."""
        return [sum(layer.size for layer in part) for part in (self.encoder, *[self.decoder] * self.decoders)]

    def code_shape(self, length: int) -> tuple[int, int]:
        return self.channels, -(-length // PLACE)

    def begun(self, seed: int) -> Trained:
        """As torch's own layers begin: uniform, by the number of inputs; the same on every rank."""
        draw = torch.Generator().manual_seed(seed)
        layers = [*self.encoder, *self.decoder * self.decoders]
        drawn = [torch.rand(layer.size, generator=draw, dtype=torch.float32, device="cpu") for layer in layers]
        flat = torch.cat([(2 * x - 1) * layer.inputs**-0.5 for x, layer in zip(drawn, layers, strict=True)])
        return Trained(flat, torch.zeros_like(flat), torch.zeros_like(flat), 0)

    def encode(self, weights: Tensor, rows: Tensor) -> Tensor:
        """The codes of rows [rows, length]: [rows, channels, places]."""
        *halving, (weight, bias) = _cut(weights[: self.sizes[0]], self.encoder)
        x = F.pad(rows, (0, -rows.shape[-1] % PLACE)).unsqueeze(1)
        for kernel, offset in halving:
            x = F.leaky_relu(F.conv1d(x, kernel, offset, stride=2, padding=1), SLOPE)
        return F.conv1d(x, weight, bias)

    def decode(
        self, weights: Tensor, code: Tensor, length: int, which: int = 0, beside: Tensor | None = None
    ) -> Tensor:
        """The row of so many entries that a code [channels, places] stands for, as one of the decoders has it."""
        own = torch.split(weights, self.sizes)[1 + which]
        *doubling, (weight, bias) = _cut(own, self.decoder)
        x = code.unsqueeze(0)
        for kernel, offset in doubling:
            x = F.leaky_relu(F.conv_transpose1d(x, kernel, offset, stride=2, padding=1, output_padding=1), SLOPE)
        x = x[..., :length]
        if beside is not None:
            x = torch.cat([x, beside.view(1, 1, -1)], 1)
        return F.conv1d(x, weight, bias).view(-1)


def _cut(weights: Tensor, layers: tuple[Layer, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer."""
    pieces = torch.split(weights, [layer.size for layer in layers])
    return [
        (piece[: -layer.bias].view(layer.weight), piece[-layer.bias :])
        for piece, layer in zip(pieces, layers, strict=True)
    ]


def stepped(trained: Trained, gradient: Tensor, optimizer: str, rate: float) -> Trained:
    """What comes of a step, of Adam or of plain gradient descent."""
    steps = trained.steps + 1
    if optimizer == "sgd":
        return trained._replace(weights=trained.weights - rate * gradient, steps=steps)
    first, second = BETAS
    mean = trained.mean.lerp(gradient, 1 - first)
    square = torch.addcmul(trained.square * second, gradient, gradient, value=1 - second)
    size = (square / (1 - second**steps)).sqrt_().add_(EPSILON)
    return Trained(trained.weights - rate / (1 - first**steps) * mean / size, mean, square, steps)
