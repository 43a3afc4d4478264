"""The models known by name, each with random data that gives gradients of realistic shape."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinwire.lab.tasks.models import lenet, lstm, mlp, resnet, vgg
from thinwire.lab.tasks.models.data import Sample, images, text

__all__ = ["MODELS", "Model", "named"]


@dataclass(frozen=True)
class Model:
    """A named architecture and the data it trains on."""

    name: str
    about: str
    # Initial weights come from the global generator, as everywhere in torch: seed it for equal weights.
    build: Callable[[], nn.Module]
    sample: Sample
    # Small enough for a forward and backward pass in seconds on two cores.
    batch: int

    def loss(self, module: nn.Module, seed: int, batch: int | None = None) -> Tensor:
        """Return the cross-entropy of `module` on random data that depends only on `seed` and `batch`."""
        # Sampled on the CPU, so that a seed gives the same data on every device.
        generator = torch.Generator().manual_seed(seed)
        inputs, labels = self.sample(generator, self.batch if batch is None else batch)
        device = next(module.parameters()).device
        logits: Tensor = module(inputs.to(device))
        # A language model predicts at every step; flattening makes each step one example.
        return F.cross_entropy(logits.flatten(end_dim=-2), labels.flatten().to(device))


GRAY_28 = images(channels=1, side=28, classes=10)
CIFAR = images(channels=3, side=32, classes=10)
IMAGENET = images(channels=3, side=224, classes=1000)

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("mlp", "perceptron 784-1024-1024-10, 28x28 gray images", mlp.mlp, GRAY_28, batch=32),
        Model("lenet", "LeNet-5, 28x28 gray images, 10 classes", lenet.lenet, GRAY_28, batch=32),
        Model("resnet20", "ResNet-20 for CIFAR-10, 32x32 color images", resnet.resnet20, CIFAR, batch=8),
        Model("resnet18", "ResNet-18 for CIFAR-10, 32x32 color images", resnet.resnet18, CIFAR, batch=8),
        Model("resnet50", "ResNet-50 for ImageNet, 224x224 color images", resnet.resnet50, IMAGENET, batch=2),
        Model("resnet101", "ResNet-101 for ImageNet, 224x224 color images", resnet.resnet101, IMAGENET, batch=2),
        Model("vgg16", "VGG-16 with batch norm for CIFAR-10, 32x32 color images", vgg.vgg16, CIFAR, batch=8),
        Model(
            "lstm",
            "3-layer LSTM language model, 35 words of a vocabulary of 28,869",
            lstm.lstm,
            text(lstm.WORDS, steps=35),
            batch=2,
        ),
    )
}


def named(name: str) -> Model:
    """Return the model called `name`, or raise ValueError with the known names and the nearest one."""
    if name in MODELS:
        return MODELS[name]
    nearest = get_close_matches(name.lower(), MODELS, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise ValueError(f"unknown model {name!r}{hint}; known models: {', '.join(MODELS)}")
