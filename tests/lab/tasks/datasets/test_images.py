import numpy as np
import pytest
import torch

from thinwire.lab.tasks.datasets.images import Images
from thinwire.lab.tasks.workload import Split


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(1, 256, (20, 8, 6, 3), np.uint8)


def images(pixels, **how) -> Split:
    return Images(pixels, np.arange(20, dtype=np.uint8) % 10, mean=[100, 110, 120], deviation=[50, 60, 70], **how)


def test_without_a_generator_images_are_only_normalized(pixels):
    chosen = torch.tensor([3, 19, 3])
    inputs, targets = images(pixels, shift=2, flip=True).batch(chosen, None)
    expected = (torch.from_numpy(pixels[[3, 19, 3]]).double() - torch.tensor([100, 110, 120])) / torch.tensor(
        [50, 60, 70]
    )
    torch.testing.assert_close(inputs, expected.permute(0, 3, 1, 2).float())
    assert targets.tolist() == [3, 9, 3]
    assert targets.dtype == torch.int64


def test_images_without_augmentation_are_the_same_in_training(pixels):
    split, chosen = images(pixels), torch.arange(5)
    assert torch.equal(split.batch(chosen, torch.Generator().manual_seed(1))[0], split.batch(chosen, None)[0])


def test_augmented_images_are_shifted_and_possibly_mirrored(pixels):
    split = images(pixels, shift=2, flip=True)
    chosen = torch.arange(20)
    plain, _ = split.batch(chosen, None)
    known = [versions(image.numpy(), 2) for image in plain]
    seen = set()
    for seed in range(20):
        moved, _ = split.batch(chosen, torch.Generator().manual_seed(seed))
        seen |= {known[number][image.numpy().tobytes()] for number, image in enumerate(moved)}
    assert len(seen) == 5 * 5 * 2, "every shift, mirrored and not"


def versions(image, shift):
    """All augmented versions of an image, as bytes, with their shift and whether they are mirrored."""
    _, height, width = image.shape
    framed = np.pad(image, ((0, 0), (shift, shift), (shift, shift)))
    found = {}
    for top in range(2 * shift + 1):
        for left in range(2 * shift + 1):
            cut = framed[:, top : top + height, left : left + width]
            found[cut.tobytes()] = top, left, False
            found[cut[:, :, ::-1].tobytes()] = top, left, True
    assert len(found) == 2 * (2 * shift + 1) ** 2
    return found


def test_equal_seeds_give_equal_augmentation_independent_of_the_global_generator(pixels):
    split, chosen = images(pixels, shift=4, flip=True), torch.arange(20)
    first, _ = split.batch(chosen, torch.Generator().manual_seed(7))
    torch.rand(100)
    again, _ = split.batch(chosen, torch.Generator().manual_seed(7))
    other, _ = split.batch(chosen, torch.Generator().manual_seed(8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_changing_a_batch_does_not_change_the_data(pixels, tmp_path):
    np.save(tmp_path / "x.npy", pixels)
    mapped = images(np.load(tmp_path / "x.npy", mmap_mode="r"), shift=1)
    before, _ = mapped.batch(torch.arange(3), None)
    mapped.batch(torch.arange(3), None)[0].zero_()
    assert torch.equal(mapped.batch(torch.arange(3), None)[0], before)
