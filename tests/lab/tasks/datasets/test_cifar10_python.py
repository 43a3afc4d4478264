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


def test_the_sample_pickle_is_a_valid_cifar_batch(pickled):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns about its old names
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


def test_a_truncated_file_is_an_error(tmp_path, pickled):
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
def test_a_hostile_pickle_is_an_error_and_not_executed(tmp_path, protocol):
    target = tmp_path / "ran"
    hostile = pickle.dumps({"labels": [1], "data": Touch(target)}, protocol)
    with pytest.raises(ValueError, match="is not supported"):
        read(written(tmp_path, hostile))
    assert not target.exists()
    pickle.loads(hostile)["data"].close()
    assert target.exists(), "unpickling would have executed it"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}q\x01(U\x06labels]q\x02U\x04dataNu.",  # no array
        b"\x80\x02]q\x01.",  # a list
        b"\x80\x02u.",  # sets items on an empty stack
        b"\x80\x02}U\x01ae.",  # appends on an empty stack
        b"\x80\x02K\x01K\x02R.",  # calls a number
        b"\x80\x02K\x01K\x02b.",  # fills a number
        b"\x80\x02q\x01.",  # memoizes on an empty stack
        b"\x80\x02h\x07.",  # reads an empty memo
        b"label byte and pixels",
    ],
)
def test_other_pickles_are_an_error(tmp_path, content):
    with pytest.raises(ValueError, match="cifar-10-batches-bin"):
        read(written(tmp_path, content))


def test_an_array_of_another_dtype_is_an_error(tmp_path):
    path = written(tmp_path, batch_pickle("a batch", LABELS, DATA, NAMES, dtype="f4"))
    with pytest.raises(ValueError, match="not an array of bytes"):
        read(path)


def test_an_array_whose_length_does_not_match_its_shape_is_an_error(tmp_path, pickled):
    content = pickled.replace(b"M\xdc\x05K\x28", b"M\xdc\x06K\x28")  # 1500 rows become 1756
    assert content != pickled
    with pytest.raises(ValueError, match="cannot reshape"):
        read(written(tmp_path, content))


def test_labels_out_of_range_are_an_error(tmp_path):
    for labels in ([300], [-1]):
        with pytest.raises(ValueError, match="range"):
            read(written(tmp_path, batch_pickle("a batch", labels, DATA[:1], NAMES[:1])))
