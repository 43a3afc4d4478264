"""A multilayer perceptron: almost every parameter sits in two large dense matrices."""

from torch import nn


def mlp() -> nn.Module:
    """Build a 784-1024-1024-10 perceptron for 28x28 gray images."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(28 * 28, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )
