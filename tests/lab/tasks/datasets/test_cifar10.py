import numpy as np
import pytest
import torch

from tests.lab.tasks.datasets.old_pickle import batch_pickle
from thinwire.lab.tasks.datasets import cifar10

FILES = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), np.uint8)


@pytest.fixture(scope="module")
def labels():
    return np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 0], np.uint8)


def write_npz(path, images, labels):
    red, green, blue = images.transpose(3, 0, 1, 2)
    decorrelated = np.stack([green, red - green, blue - green])
    down = np.diff(decorrelated, axis=2, prepend=np.uint8(0))
    np.savez(path, d=np.diff(down, axis=3, prepend=np.uint8(0)), y=labels)


def as_npz(folder, images, labels):
    write_npz(folder / "cifar10_train.npz", images[:10], labels[:10])
    write_npz(folder / "cifar10_test.npz", images[10:], labels[10:])


def planes(images):
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def as_binary(folder, images, labels):
    (folder / "cifar-10-batches-bin").mkdir()
    records = np.concatenate([labels[:, None], planes(images)], 1)
    for position, name in enumerate([*FILES, "test_batch"]):
        records[2 * position : 2 * position + 2].tofile(folder / "cifar-10-batches-bin" / f"{name}.bin")


def as_python(folder, images, labels):
    (folder / "cifar-10-batches-py").mkdir()
    for position, name in enumerate([*FILES, "test_batch"]):
        part = slice(2 * position, 2 * position + 2)
        pickled = batch_pickle("a batch", labels[part].tolist(), planes(images[part]), ["caf\xe9.png", "b.png"])
        (folder / "cifar-10-batches-py" / name).write_bytes(pickled)


@pytest.mark.parametrize("layout", [as_npz, as_binary, as_python])
def test_every_layout_gives_the_same_images(tmp_path, images, labels, layout):
    layout(tmp_path, images, labels)
    for _ in range(2):  # decoded, then from the cache
        training, test = cifar10.load(tmp_path)
        for part, wanted, classes in ((training, images[:10], labels[:10]), (test, images[10:], labels[10:])):
            inputs, targets = part.batch(torch.arange(len(part)), None)
            restored = inputs.permute(0, 2, 3, 1) * torch.tensor(cifar10.DEVIATION) + torch.tensor(cifar10.MEAN)
            assert np.array_equal(restored.round().numpy(), wanted)
            assert targets.tolist() == part.labels.tolist() == classes.tolist()


def test_only_the_training_split_is_augmented(tmp_path, images, labels):
    as_binary(tmp_path, images, labels)
    training, test = cifar10.load(tmp_path)
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(training.batch(torch.arange(10), generator)[0], training.batch(torch.arange(10), None)[0])
    assert torch.equal(test.batch(torch.arange(2), generator)[0], test.batch(torch.arange(2), None)[0])


@pytest.mark.parametrize("layout", [as_npz, as_binary, as_python])
def test_a_missing_file_is_an_error_that_names_it(tmp_path, images, labels, layout):
    layout(tmp_path, images, labels)
    missing = next(tmp_path.rglob("*test*"))
    missing.unlink()
    with pytest.raises(ValueError, match=f"{missing.name} is missing"):
        cifar10.load(tmp_path)


@pytest.mark.parametrize("layout", [as_npz, as_binary, as_python])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, images, labels, layout):
    layout(tmp_path, images, labels)
    cut = next(tmp_path.rglob("*test*"))
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(ValueError, match=f"{cut.name} (has|is)"):
        cifar10.load(tmp_path)


@pytest.mark.parametrize("layout", [as_npz, as_binary, as_python])
def test_an_eleventh_class_is_an_error(tmp_path, images, labels, layout):
    layout(tmp_path, images, labels + 1)
    with pytest.raises(ValueError, match="classes should be 0 to 9, but there is 10"):
        cifar10.load(tmp_path)


@pytest.mark.parametrize(
    ("differences", "classes", "message"),
    [
        (np.zeros((3, 2, 28, 28), np.uint8), [0, 1], r"d should be uint8 \[3, N, 32, 32\], but is uint8"),
        (np.zeros((3, 2, 32, 32)), [0, 1], r"d should be .* but is float64"),
        (np.zeros((3, 2, 32, 32), np.uint8), [0], "2 images, but 1 labels"),
    ],
)
def test_unexpected_arrays_are_an_error(tmp_path, differences, classes, message):
    np.savez(tmp_path / "cifar10_train.npz", d=differences, y=np.array(classes, np.uint8))
    np.savez(tmp_path / "cifar10_test.npz", d=differences, y=np.array(classes, np.uint8))
    with pytest.raises(ValueError, match=rf"cifar10_train\.npz: {message}"):
        cifar10.load(tmp_path)


def test_missing_data_is_an_error_with_all_file_names_and_a_source(tmp_path):
    with pytest.raises(ValueError, match="looked for") as error:
        cifar10.load(tmp_path)
    for part in (
        str(tmp_path),
        "cifar10_train.npz",
        "cifar-10-batches-bin/",
        "cifar-10-batches-py/",
        "torchvision.datasets.CIFAR10",
        "--data",
        "THINWIRE_DATA",
    ):
        assert part in str(error.value)
