"""MNIST (LeCun et al., 1998): 70,000 handwritten digits of 28 x 28 pixels."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from thinwire.lab.tasks.datasets import cache
from thinwire.lab.tasks.datasets.files import Array, all_there, check, check_classes, check_same_length, missing, npz
from thinwire.lab.tasks.datasets.images import Images

CLASSES, SIDE = 10, 28
# Of the training images.
MEAN, DEVIATION = (33.318,), (78.567,)

VERSION = 1
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
IDX_BYTES = 8  # the idx type code of bytes


def load(folder: Path | None) -> tuple[Images, Images]:
    """The training and the test split."""
    sources = found(folder)
    images, labels, test_images, test_labels = cache.decoded("mnist", sources, VERSION, ARRAYS, lambda: read(sources))
    return Images(images, labels, MEAN, DEVIATION), Images(test_images, test_labels, MEAN, DEVIATION)


def found(folder: Path | None) -> list[Path]:
    """The archive, or the four original files."""
    if folder:
        if (archive := folder / "mnist.npz").exists():
            return [archive]
        if (raw := folder / "MNIST" / "raw").is_dir():
            files = [raw / name for name in IDX_FILES]
            return list(all_there([file if file.exists() else Path(f"{file}.gz") for file in files]))
    raise missing(
        "MNIST",
        folder,
        ["mnist.npz", "MNIST/raw/*-ubyte", "MNIST/raw/*-ubyte.gz"],
        "torchvision.datasets.MNIST(folder, download=True) puts it there; the mnist.npz of Keras is read too",
    )


def read(sources: list[Path]) -> list[Array]:
    """Training images and labels, then test images and labels."""
    if len(sources) == 1:
        arrays, sources = npz(sources[0], ARRAYS), sources * len(ARRAYS)
    else:
        arrays = [read_idx(source) for source in sources]
    for first in (0, 2):
        images, labels = arrays[first], arrays[first + 1]
        check(sources[first], "images", images, np.uint8, (None, SIDE, SIDE))
        check(sources[first + 1], "labels", labels, np.uint8, (None,))
        check_classes(sources[first + 1], labels, CLASSES)
        check_same_length(sources[first + 1], images, labels)
    return [arrays[0][..., None], arrays[1], arrays[2][..., None], arrays[3]]


def read_idx(path: Path) -> Array:
    """The array in an idx file: a header with type, number of dimensions and shape, then the values."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file: {error}") from None
    if len(raw) < 4 or raw[:3] != bytes([0, 0, IDX_BYTES]):
        raise ValueError(f"{path} is not an idx file of bytes: it begins with {raw[:4].hex(' ') or 'nothing'}")
    start = 4 + 4 * raw[3]
    shape = struct.unpack(f">{raw[3]}I", raw[4:start]) if len(raw) >= start else ()
    if len(raw) != start + np.prod(shape, dtype=int):
        raise ValueError(f"{path} has {len(raw)} bytes, but {start} of header and {list(shape)} values are expected")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)
