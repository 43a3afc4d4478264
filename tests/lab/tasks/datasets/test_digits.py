import torch

from thinwire.lab.tasks.datasets import digits


def test_every_run_has_the_same_disjoint_split_of_all_images():
    training, test = digits.load()
    again, _ = digits.load()
    everything = torch.arange(len(training))
    assert torch.equal(training.batch(everything, None)[0], again.batch(everything, None)[0])
    assert len(test) == digits.TEST_IMAGES
    assert len(training) + len(test) == 1797
    assert training.labels.bincount().min() > 100, "every digit has enough examples"


def test_images_are_single_channel_and_between_zero_and_one():
    training, _ = digits.load()
    images, _ = training.batch(torch.arange(len(training)), None)
    assert images.shape == (1437, 1, 8, 8)
    assert images.min() == 0
    assert images.max() == 1
