import pickle
import pickletools
import warnings

import numpy as np
import pytest

from tests.lab.tasks.datasets.old_pickle import batch_pickle
from thinwire.lab.tasks.datasets.cifar10_python import read

DATA = np.random.default_rng(0).integers(0, 256, (1500, 40), np.uint8)
LABELS = [number % 10 for number in range(1500)]
NAMES = [f"\xe9t\xe9_s_{number:06}.png" for number in range(1500)]


@pytest.fixture(scope="module")
def pickled():
    return batch_pickle("training batch 1 of 5", LABELS, DATA, NAMES)


def written(tmp_path, content):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    return path


def test_what_these_tests_write_is_a_pickle_of_such_a_batch(pickled):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, about its old names
        batch = pickle.loads(pickled, encoding="latin1")
    assert batch["batch_label"] == "training batch 1 of 5"
    assert batch["labels"] == LABELS
    assert np.array_equal(batch["data"], DATA)
    assert batch["filenames"] == NAMES


@pytest.mark.parametrize("by_columns", [False, True])
def test_data_and_labels_are_read(tmp_path, by_columns):
    path = written(tmp_path, batch_pickle("a batch", LABELS, DATA, NAMES, by_columns=by_columns))
    data, labels = read(path)
    assert np.array_equal(data, DATA)
    assert labels.tolist() == LABELS
    assert labels.dtype == np.uint8


def test_a_file_cut_short_anywhere_is_refused(tmp_path, pickled):
    starts = [position for _, _, position in pickletools.genops(pickled)]
    for length in {0, 1, len(pickled) // 2, len(pickled) - 1, *starts[:40], *starts[-40:]}:
        with pytest.raises(ValueError, match="data_batch_1 is damaged"):
            read(written(tmp_path, pickled[:length]))


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_something_runs_nothing(tmp_path, protocol):
    target = tmp_path / "ran"
    hostile = pickle.dumps({"labels": [1], "data": Touch(target)}, protocol)
    with pytest.raises(ValueError, match="has no place in it"):
        read(written(tmp_path, hostile))
    assert not target.exists()
    pickle.loads(hostile)["data"].close()
    assert target.exists(), "the pickle is as hostile as it looks"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}q\x01(U\x06labels]q\x02U\x04dataNu.",  # no array
        b"\x80\x02]q\x01.",  # a list
        b"\x80\x02u.",  # sets items of nothing
        b"\x80\x02}U\x01ae.",  # appends to nothing
        b"\x80\x02K\x01K\x02R.",  # calls a number
        b"\x80\x02K\x01K\x02b.",  # fills a number
        b"\x80\x02q\x01.",  # keeps nothing
        b"\x80\x02h\x07.",  # recalls what was never kept
        b"label byte and pixels",
    ],
)
def test_other_programs_are_refused(tmp_path, content):
    with pytest.raises(ValueError, match="cifar-10-batches-bin"):
        read(written(tmp_path, content))


def test_an_array_of_anything_but_bytes_is_refused(tmp_path):
    path = written(tmp_path, batch_pickle("a batch", LABELS, DATA, NAMES, dtype="f4"))
    with pytest.raises(ValueError, match="not an array of bytes"):
        read(path)


def test_an_array_of_another_length_than_its_shape_is_refused(tmp_path, pickled):
    content = pickled.replace(b"M\xdc\x05K\x28", b"M\xdc\x06K\x28")  # 1500 rows become 1756
    assert content != pickled
    with pytest.raises(ValueError, match="cannot reshape"):
        read(written(tmp_path, content))


def test_labels_that_are_no_small_numbers_are_refused(tmp_path):
    for labels in ([300], [-1]):
        with pytest.raises(ValueError, match="range"):
            read(written(tmp_path, batch_pickle("a batch", labels, DATA[:1], NAMES[:1])))
