"""The real data sets; skipped if they are missing."""

import os

import pytest
import torch

from thinwire.lab.tasks import datasets
from thinwire.lab.tasks.datasets import camvid, cifar10, mnist, shakespeare

pytestmark = pytest.mark.skipif(not os.environ.get("THINWIRE_DATA"), reason="THINWIRE_DATA is not set")


def loaded(load, *how):
    try:
        return load(datasets.folder(None), *how)
    except ValueError as error:
        if "looked for" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("data", [cifar10, mnist])
def test_all_images_are_read_and_normalized(data):
    training, test = loaded(data.load)
    assert len(training) == {cifar10: 50_000, mnist: 60_000}[data]
    assert len(test) == 10_000
    chosen = torch.arange(len(training)).split(5000)  # all at once would take a gigabyte
    moments = [
        (images.mean((0, 2, 3)), images.square().mean((0, 2, 3)))
        for images, _ in (training.batch(part, None) for part in chosen)
    ]
    mean, square = (torch.stack(parts).mean(0) for parts in zip(*moments, strict=True))
    assert mean.abs().max() < 1e-3
    assert (square - 1).abs().max() < 1e-3
    assert training.labels.bincount().min() > 4900
    assert test.labels.bincount().min() > 800


def test_all_scenes_are_read():
    training, test = loaded(camvid.load)
    assert (len(training), len(test)) == (367, 233)
    _, targets = training.batch(torch.arange(367), None)
    labeled = targets[targets != camvid.IGNORED]
    assert 0.3 < (labeled == 3).float().mean() < 0.35, "a third is road"
    assert labeled.unique().tolist() == list(range(camvid.CLASSES))


def test_the_text_starts_with_the_first_scene():
    training, _ = loaded(shakespeare.load, 64)
    inputs, _ = training.batch(torch.tensor([0]), None)
    assert "".join(shakespeare.CHARACTERS[number] for number in inputs[0]).startswith(
        "First Citizen:\nBefore we proceed"
    )
