import torch

from thinwire.lab import digits


def test_every_run_has_the_same_disjoint_split_of_all_images():
    training, test = digits.load()
    again, _ = digits.load()
    assert torch.equal(training.images, again.images)
    assert len(test.labels) == digits.TEST_IMAGES
    assert len(training.labels) + len(test.labels) == 1797
    assert training.labels.bincount().min() > 100, "every digit is there to learn"


def test_images_are_single_channel_and_between_zero_and_one():
    training, _ = digits.load()
    assert training.images.shape[1:] == (1, 8, 8)
    assert training.images.min() == 0
    assert training.images.max() == 1


def test_the_network_takes_the_images():
    training, _ = digits.load()
    assert digits.network()(training.images[:2]).shape == (2, 10)
