"""Residual networks (He et al., 2015) for CIFAR-sized and ImageNet-sized images.

A network is a combination of three choices: the stem that reads the image, the block that is repeated, and
the shortcut used where a block changes the shape. The functions at the end name the usual combinations.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

# Called with (channels in, channels out, stride).
Shortcut = Callable[[int, int, int], nn.Module]


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Build a convolution that changes height and width only through its stride."""
    # No bias: the batch norm that follows every convolution here would cancel it.
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class PaddedShortcut(nn.Module):
    """Reach a new shape without parameters: skip pixels and add channels of zeros (option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, self.before, self.after))


def projected_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Reach a new shape with a learned 1x1 convolution (option B)."""
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut around them."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones that narrow and widen, with a shortcut around them."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        # The paper strides in conv1; today's usual variant strides here, as a strided 1x1 ignores pixels.
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, stages that each double the width and halve the image, and a linear classifier."""

    def __init__(
        self,
        stem: nn.Module,
        block: type[BasicBlock] | type[Bottleneck],
        shortcut: Shortcut,
        width: int,
        depths: Sequence[int],
        classes: int,
    ) -> None:
        """Stack one stage per entry of `depths`; the stem and the first stage have `width` channels."""
        super().__init__()
        self.stem = stem
        self.stages = nn.Sequential()
        channels = width
        for stage, depth in enumerate(depths):
            stage_width = width * 2**stage
            outputs = stage_width * block.expansion
            blocks = nn.Sequential()
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                same_shape = stride == 1 and channels == outputs
                around = nn.Identity() if same_shape else shortcut(channels, outputs, stride)
                blocks.append(block(channels, stage_width, stride, around))
                channels = outputs
            self.stages.append(blocks)
        self.classifier = nn.Linear(channels, classes)

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.stages(self.stem(images))
        logits: Tensor = self.classifier(features.mean(dim=(2, 3)))
        return logits


def cifar_stem(width: int) -> nn.Module:
    """Read a 32x32 image at full resolution."""
    return nn.Sequential(conv(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())


def imagenet_stem(width: int) -> nn.Module:
    """Read a 224x224 image and shrink it to 56x56."""
    return nn.Sequential(
        conv(3, width, 7, stride=2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    )


def resnet20() -> nn.Module:
    """Build the 20-layer CIFAR-10 network of the original paper."""
    return ResNet(cifar_stem(16), BasicBlock, PaddedShortcut, width=16, depths=(3, 3, 3), classes=10)


def resnet18() -> nn.Module:
    """Build the 18-layer network with a CIFAR-10 stem and classifier."""
    return ResNet(cifar_stem(64), BasicBlock, projected_shortcut, width=64, depths=(2, 2, 2, 2), classes=10)


def resnet50() -> nn.Module:
    """Build the 50-layer ImageNet network."""
    return ResNet(imagenet_stem(64), Bottleneck, projected_shortcut, width=64, depths=(3, 4, 6, 3), classes=1000)


def resnet101() -> nn.Module:
    """Build the 101-layer ImageNet network."""
    return ResNet(imagenet_stem(64), Bottleneck, projected_shortcut, width=64, depths=(3, 4, 23, 3), classes=1000)
