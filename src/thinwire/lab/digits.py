"""Handwritten digits: a small data set inside the package, and a small network for it."""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

TEST_IMAGES = 360
SPLIT_SEED = 20260101  # of the shuffle that divides training from test images; every run has the same test images


class Split(NamedTuple):
    images: Tensor
    labels: Tensor


def load() -> tuple[Split, Split]:
    """The training and the test part, as float images in [0, 1]."""
    with files("thinwire.lab").joinpath("data/digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images = torch.from_numpy(stored["images"]).float().div_(16).unsqueeze(1)
        labels = torch.from_numpy(stored["labels"]).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return Split(images[train], labels[train]), Split(images[test], labels[test])


def network() -> nn.Module:
    """Two convolutions and two dense layers, 0.29 million parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
