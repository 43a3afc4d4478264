import numpy as np
import torch

from thinwire.lab.tasks.datasets.text import Text
from thinwire.lab.tasks.workload import Split

NUMBERS = np.arange(100, dtype=np.uint8)


def split(window=8) -> Split:
    return Text(NUMBERS, window)


def test_targets_are_the_inputs_shifted_by_one_character():
    inputs, targets = split().batch(torch.tensor([0, 5]), None)
    assert inputs.tolist() == [list(range(8)), list(range(40, 48))]
    assert torch.equal(targets, inputs + 1)


def test_windows_cover_the_text_once_and_have_no_labels():
    text = split()
    assert text.labels is None
    inputs, _ = text.batch(torch.arange(len(text)), None)
    assert inputs.flatten().tolist() == list(range(96))
    assert len(Text(NUMBERS[:97], 8)) == 12
    assert len(Text(NUMBERS[:96], 8)) == 11, "the last target would be missing"


def test_training_windows_have_random_starts():
    text = split()
    starts: set[int] = set()
    for seed in range(100):
        inputs, targets = text.batch(torch.arange(len(text)), torch.Generator().manual_seed(seed))
        assert torch.equal(targets, inputs + 1)
        assert (inputs.diff(dim=1) == 1).all()
        starts.update((inputs[:, 0]).tolist())
    assert starts == set(range(100 - 8)), "every start occurs, and no window exceeds the text"


def test_equal_seeds_give_equal_windows():
    first, again = (split().batch(torch.arange(12), torch.Generator().manual_seed(3))[0] for _ in range(2))
    assert torch.equal(first, again)
