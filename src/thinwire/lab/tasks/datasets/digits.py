"""1,797 handwritten digits of 8 x 8 pixels, included in the package."""

from importlib.resources import files

import numpy as np
import torch

from thinwire.lab.tasks.datasets.images import Images

TEST_IMAGES = 360
SPLIT_SEED = 20260101  # of the shuffle that divides training from test images; every run has the same test images
LARGEST = 16  # value of a pixel


def load() -> tuple[Images, Images]:
    """The training and the test split, with values in [0, 1]."""
    with files("thinwire.lab").joinpath("data/digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images, labels = stored["images"][..., None], stored["labels"]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SPLIT_SEED)).numpy()
    test, training = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return part(images[training], labels[training]), part(images[test], labels[test])


def part(images: np.ndarray, labels: np.ndarray) -> Images:
    return Images(images, labels, mean=[0], deviation=[LARGEST])
