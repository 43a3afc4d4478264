"""A shallow residual network that learns CIFAR-10 in few epochs.

Its shape is that of the ResNet-9 with which Page (2019) won DAWNBench: three stages that double the width and halve the
image, with a residual block in the first and the last. There, the first convolution has 64 channels.
"""

from torch import Tensor, nn


def conv_bn_relu(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Residual(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(conv_bn_relu(channels, channels), conv_bn_relu(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.branch(x)
        return y


class Scaled(nn.Module):
    """A layer whose output is multiplied by a constant: small initial scores allow large first steps."""

    def __init__(self, layer: nn.Module, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = layer, factor

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) * self.factor
        return y


def resnet9(width: int = 64, classes: int = 10) -> nn.Module:
    """Build the network for images of 32 x 32 pixels; the first convolution has `width` channels."""
    return nn.Sequential(
        conv_bn_relu(3, width),
        conv_bn_relu(width, 2 * width),
        nn.MaxPool2d(2),
        Residual(2 * width),
        conv_bn_relu(2 * width, 4 * width),
        nn.MaxPool2d(2),
        conv_bn_relu(4 * width, 8 * width),
        nn.MaxPool2d(2),
        Residual(8 * width),
        nn.MaxPool2d(4),
        nn.Flatten(),
        Scaled(nn.Linear(8 * width, classes, bias=False), 0.125),
    )
