import gzip

import numpy as np
import pytest
import torch

from thinwire.lab.tasks.datasets import mnist

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8)
LABELS = np.array([0, 9, 1, 8, 2, 7, 3], np.uint8)
PARTS = {"x_train": IMAGES[:5], "y_train": LABELS[:5], "x_test": IMAGES[5:], "y_test": LABELS[5:]}


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    return header + array.tobytes()


def as_npz(folder, **changed):
    np.savez(folder / "mnist.npz", **PARTS | changed)


def as_idx(folder, **changed):
    (folder / "MNIST" / "raw").mkdir(parents=True)
    for name, array in zip(mnist.IDX_FILES, (PARTS | changed).values(), strict=True):
        (folder / "MNIST" / "raw" / name).write_bytes(idx(array))


def as_gzip(folder, **changed):
    as_idx(folder, **changed)
    for path in list((folder / "MNIST" / "raw").iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


every_layout = pytest.mark.parametrize("layout", [as_npz, as_idx, as_gzip])


@every_layout
def test_every_layout_gives_the_same_images(tmp_path, layout):
    layout(tmp_path)
    for _ in range(2):  # decoded, then from the cache
        training, test = mnist.load(tmp_path)
        for part, images, labels in ((training, IMAGES[:5], LABELS[:5]), (test, IMAGES[5:], LABELS[5:])):
            inputs, targets = part.batch(torch.arange(len(part)), None)
            restored = inputs[:, 0] * mnist.DEVIATION[0] + mnist.MEAN[0]
            assert inputs.shape[1:] == (1, 28, 28)
            assert np.array_equal(restored.round().numpy(), images)
            assert targets.tolist() == labels.tolist()


@every_layout
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_test": IMAGES[5:, :27]}, r"images should be uint8 \[N, 28, 28\], but is uint8 \[2, 27, 28\]"),
        ({"y_train": LABELS[:4]}, "5 images, but 4 labels"),
        ({"y_test": np.array([1, 10], np.uint8)}, "classes should be 0 to 9, but there is 10"),
        ({"y_test": LABELS[:0], "x_test": IMAGES[:0]}, r"images should be uint8 \[N, 28, 28\], but is uint8 \[0, 28"),
    ],
)
def test_unexpected_arrays_are_an_error(tmp_path, layout, changed, message):
    layout(tmp_path, **changed)
    with pytest.raises(ValueError, match=f"mnist\\.npz: {message}|ubyte(\\.gz)?: {message}"):
        mnist.load(tmp_path)


@pytest.mark.parametrize("layout", [as_idx, as_gzip])
@pytest.mark.parametrize("left", [0, 2, 4, 11, 100, -1])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, layout, left):
    layout(tmp_path)
    path = next((tmp_path / "MNIST" / "raw").glob("t10k-images*"))
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ValueError, match=f"{path.name} (is not|has)"):
        mnist.load(tmp_path)


def test_a_file_with_trailing_bytes_is_an_error_that_names_it(tmp_path):
    as_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte has 14 bytes"):
        mnist.load(tmp_path)


def test_a_file_of_another_type_is_an_error_that_names_it(tmp_path):
    as_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    path.write_bytes(bytes([0, 0, 13, 1, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="is not an idx file of bytes: it begins with 00 00 0d 01"):
        mnist.load(tmp_path)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    as_idx(tmp_path)
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.* is missing"):
        mnist.load(tmp_path)


def test_missing_data_is_an_error_with_all_file_names_and_a_source(tmp_path):
    with pytest.raises(ValueError, match="looked for") as error:
        mnist.load(tmp_path)
    for part in (str(tmp_path), "mnist.npz", "MNIST/raw", "torchvision.datasets.MNIST", "--data", "THINWIRE_DATA"):
        assert part in str(error.value)
