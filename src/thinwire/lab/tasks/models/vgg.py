"""VGG (Simonyan and Zisserman, 2014) for CIFAR-10, with batch norm."""

from torch import nn

# Output channels of the 3x3 convolutions; each row ends with a pooling that halves the image.
VGG16 = (
    (64, 64),
    (128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (512, 512, 512),
)


def vgg16(width: int = 64) -> nn.Module:
    """Build a VGG-16 whose thirteen convolutions feed one linear classifier of ten classes.

    The first convolution has `width` channels; all others keep their proportions to it.
    """
    layers: list[nn.Module] = []
    channels = 3
    for row in VGG16:
        for outputs in (full * width // VGG16[0][0] for full in row):
            # Batch norm cancels this bias, so its gradient is rounding noise; VGG has it nevertheless.
            conv = nn.Conv2d(channels, outputs, kernel_size=3, padding=1, bias=True)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU()]
            channels = outputs
        layers.append(nn.MaxPool2d(2))
    # Five poolings leave one pixel of a 32x32 image, so the channels are the features.
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 10))
