"""The 1-d convolutional auto-encoder of LGC, as plain tensors: no nn.Module, no torch.optim, no global generator.

Its weights are one flat tensor, and so are its optimizer's moments, so that they fit in a reducer's state. Ranks that
train it on the same values get the same bits if their arithmetic is the same.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDE = 16  # entries per position of the code
DOWN = (1, 64, 128, 256, 64)  # channels of the encoder, each layer halving the length
UP = (32, 64, 128, 32)  # channels of a decoder, each layer doubling the length
SLOPE = 0.01  # of leaky ReLU, for negative inputs
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam

OPTIMIZERS = ("adam", "sgd")


class Trained(NamedTuple):
    """Weights and the state of their optimizer."""

    weights: Tensor
    mean: Tensor  # first moment of Adam
    square: Tensor  # second moment of Adam
    steps: int


class Layer(NamedTuple):
    weight: tuple[int, ...]
    bias: int
    inputs: int  # fan-in of an output, as torch counts it for weight initialization

    @property
    def size(self) -> int:
        return torch.Size(self.weight).numel() + self.bias


class AutoEncoder(NamedTuple):
    """The architecture: one encoder and one or more decoders."""

    channels: int = 4  # of the code, which has one position for every 16 entries
    decoders: int = 1
    extra_channel: bool = False  # a decoder's last layer has another input channel, for values that are known

    @property
    def encoder(self) -> tuple[Layer, ...]:
        halving = [Layer((out, into, 3), out, 3 * into) for into, out in pairwise(DOWN)]
        return *halving, Layer((self.channels, DOWN[-1], 1), self.channels, DOWN[-1])

    @property
    def decoder(self) -> tuple[Layer, ...]:
        doubling = [Layer((into, out, 3), out, 3 * out) for into, out in pairwise((self.channels, *UP))]
        last = UP[-1] + self.extra_channel
        return *doubling, Layer((1, last, 1), 1, last)

    @property
    def sizes(self) -> list[int]:
        """Number of weights of the encoder and of each decoder, in the order of the flat tensor."""
        return [sum(layer.size for layer in part) for part in (self.encoder, *[self.decoder] * self.decoders)]

    def code_shape(self, length: int) -> tuple[int, int]:
        return self.channels, -(-length // STRIDE)

    def initial(self, seed: int) -> Trained:
        """Initial weights: torch's uniform initialization by fan-in, the same on every rank."""
        generator = torch.Generator().manual_seed(seed)
        layers = [*self.encoder, *self.decoder * self.decoders]
        sampled = [torch.rand(layer.size, generator=generator, dtype=torch.float32, device="cpu") for layer in layers]
        flat = torch.cat([(2 * x - 1) * layer.inputs**-0.5 for x, layer in zip(sampled, layers, strict=True)])
        return Trained(flat, torch.zeros_like(flat), torch.zeros_like(flat), 0)

    def encode(self, weights: Tensor, rows: Tensor) -> Tensor:
        """The codes of rows [rows, length]: [rows, channels, positions]."""
        *halving, (weight, bias) = _weights_and_biases(weights[: self.sizes[0]], self.encoder)
        x = F.pad(rows, (0, -rows.shape[-1] % STRIDE)).unsqueeze(1)
        for kernel, offset in halving:
            x = F.leaky_relu(F.conv1d(x, kernel, offset, stride=2, padding=1), SLOPE)
        return F.conv1d(x, weight, bias)

    def decode(self, weights: Tensor, code: Tensor, length: int, which: int = 0, extra: Tensor | None = None) -> Tensor:
        """Decode a code [channels, positions] to a row of `length` entries, with decoder number `which`."""
        own = torch.split(weights, self.sizes)[1 + which]
        *doubling, (weight, bias) = _weights_and_biases(own, self.decoder)
        x = code.unsqueeze(0)
        for kernel, offset in doubling:
            x = F.leaky_relu(F.conv_transpose1d(x, kernel, offset, stride=2, padding=1, output_padding=1), SLOPE)
        x = x[..., :length]
        if extra is not None:
            x = torch.cat([x, extra.view(1, 1, -1)], 1)
        return F.conv1d(x, weight, bias).view(-1)


def _weights_and_biases(weights: Tensor, layers: tuple[Layer, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer."""
    pieces = torch.split(weights, [layer.size for layer in layers])
    return [
        (piece[: -layer.bias].view(layer.weight), piece[-layer.bias :])
        for piece, layer in zip(pieces, layers, strict=True)
    ]


def stepped(trained: Trained, gradient: Tensor, optimizer: str, rate: float) -> Trained:
    """The weights and moments after one step of Adam or SGD."""
    steps = trained.steps + 1
    if optimizer == "sgd":
        return trained._replace(weights=trained.weights - rate * gradient, steps=steps)
    first, second = BETAS
    mean = trained.mean.lerp(gradient, 1 - first)
    square = torch.addcmul(trained.square * second, gradient, gradient, value=1 - second)
    scale = (square / (1 - second**steps)).sqrt_().add_(EPSILON)
    return Trained(trained.weights - rate / (1 - first**steps) * mean / scale, mean, square, steps)
