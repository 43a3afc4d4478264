"""CIFAR-10 (Krizhevsky, 2009): 60,000 color images of 32 x 32 pixels in ten classes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from thinwire.lab.tasks.datasets import cache, cifar10_python
from thinwire.lab.tasks.datasets.files import Array, all_there, check, check_classes, check_same_length, missing, npz
from thinwire.lab.tasks.datasets.images import Images

CLASSES, SIDE = 10, 32
VALUES = 3 * SIDE * SIDE  # of an image
# Of the training images, per channel.
MEAN = (125.307, 122.950, 113.865)
DEVIATION = (62.993, 62.089, 66.705)

VERSION = 1
PARTS = ([f"data_batch_{number}" for number in range(1, 6)], ["test_batch"])

# Called with a file; returns uint8 images [count, 32, 32, 3] and their classes.
Reader = Callable[[Path], tuple[Array, Array]]


def load(folder: Path | None) -> tuple[Images, Images]:
    """The training split, with random shifts of up to 4 pixels and mirroring, and the test split."""
    read, training, test = found(folder)
    images, labels = decoded("training", training, read)
    test_images, test_labels = decoded("test", test, read)
    return (
        Images(images, labels, MEAN, DEVIATION, shift=4, flip=True),
        Images(test_images, test_labels, MEAN, DEVIATION),
    )


def found(folder: Path | None) -> tuple[Reader, Sequence[Path], Sequence[Path]]:
    """The reader for the files that exist, the training files, and the test files."""
    training, test = PARTS
    if folder:
        archives = folder / "cifar10_train.npz", folder / "cifar10_test.npz"
        binary, python = folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py"
        if archives[0].exists() or archives[1].exists():
            return read_npz, all_there(archives[:1]), all_there(archives[1:])
        if binary.is_dir():
            files = [[binary / f"{name}.bin" for name in part] for part in PARTS]
            return read_binary, all_there(files[0]), all_there(files[1])
        if python.is_dir():
            return (
                read_python,
                all_there([python / name for name in training]),
                all_there([python / name for name in test]),
            )
    raise missing(
        "CIFAR-10",
        folder,
        ["cifar10_train.npz with cifar10_test.npz", "cifar-10-batches-bin/", "cifar-10-batches-py/"],
        "torchvision.datasets.CIFAR10(folder, download=True) puts it there; "
        "so does unpacking the archive from its author's page at the University of Toronto",
    )


def decoded(part: str, files: Sequence[Path], read: Reader) -> list[Array]:
    def decode() -> list[Array]:
        images, labels = zip(*(read(file) for file in files), strict=True)
        return [np.concatenate(images), np.concatenate(labels)]

    return cache.decoded(f"cifar10-{part}", files, VERSION, ["images", "labels"], decode)


def read_npz(path: Path) -> tuple[Array, Array]:
    """Green, red - green and blue - green, as differences along both axes: stored so, images compress best."""
    differences, labels = npz(path, ["d", "y"])
    check(path, "d", differences, np.uint8, (3, None, SIDE, SIDE))
    green, red, blue = differences.cumsum(2, dtype=np.uint8).cumsum(3, dtype=np.uint8)
    return checked(path, np.stack([red + green, green, blue + green], -1), labels)


def read_binary(path: Path) -> tuple[Array, Array]:
    """Records of a class and the red, green and blue plane."""
    raw = np.fromfile(path, np.uint8)
    if not len(raw) or len(raw) % (1 + VALUES):
        raise ValueError(f"{path} has {len(raw)} bytes, which is not a multiple of {1 + VALUES}: it is truncated")
    records = raw.reshape(-1, 1 + VALUES)
    return checked(path, from_planes(records[:, 1:]), records[:, 0])


def read_python(path: Path) -> tuple[Array, Array]:
    """The same planes, in a pickle that is read without unpickling."""
    planes, labels = cifar10_python.read(path)
    check(path, "data", planes, np.uint8, (None, VALUES))
    return checked(path, from_planes(planes), labels)


def from_planes(planes: Array) -> Array:
    return planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)


def checked(path: Path, images: Array, labels: Array) -> tuple[Array, Array]:
    check(path, "labels", labels, np.uint8, (None,))
    check_classes(path, labels, CLASSES)
    check_same_length(path, images, labels)
    return images, labels
