"""LeNet-5 (LeCun et al., 1998) in its modern form, with ReLU and max pooling."""

from torch import nn


def lenet() -> nn.Module:
    """Build a LeNet-5 for 28x28 gray images and ten classes."""
    return nn.Sequential(
        # LeNet-5 was designed for 32x32 images; the padding makes up the difference.
        nn.Conv2d(1, 6, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )
