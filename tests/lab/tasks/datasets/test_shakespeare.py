import numpy as np
import pytest
import torch

from thinwire.lab.tasks.datasets import shakespeare
from thinwire.lab.tasks.datasets.shakespeare import CHARACTERS, LENGTH


@pytest.fixture(scope="module")
def text():
    numbers = np.random.default_rng(0).integers(0, len(CHARACTERS), LENGTH)
    return np.frombuffer(CHARACTERS.encode(), np.uint8)[numbers].tobytes()


@pytest.mark.parametrize("path", ["tinyshakespeare.txt", "tinyshakespeare/input.txt", "input.txt"])
def test_the_text_is_found_at_each_known_path(tmp_path, text, path):
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_bytes(text)
    training, test = shakespeare.load(tmp_path, window=64)
    assert (len(training), len(test)) == (15685, 1742)
    for part, start in ((training, 0), (test, 1_003_854)):
        inputs, _ = part.batch(torch.tensor([0]), None)
        assert "".join(CHARACTERS[number] for number in inputs[0]) == text[start : start + 64].decode()


def test_there_are_65_characters_in_the_order_of_their_codes():
    assert len(CHARACTERS) == 65
    assert sorted(set(CHARACTERS)) == list(CHARACTERS)


def test_a_text_of_another_length_is_an_error(tmp_path, text):
    (tmp_path / "input.txt").write_bytes(text[:-1])
    with pytest.raises(ValueError, match=r"input\.txt has 1,115,393 bytes, but .* 1,115,394"):
        shakespeare.load(tmp_path, window=64)


def test_a_text_with_other_characters_is_an_error(tmp_path, text):
    (tmp_path / "input.txt").write_bytes(text[:100] + b"%" + text[101:])
    with pytest.raises(ValueError, match=r"input\.txt is another text: byte 100 is '%'"):
        shakespeare.load(tmp_path, window=64)


def test_missing_data_is_an_error_with_all_file_names_and_a_source(tmp_path):
    with pytest.raises(ValueError, match="looked for") as error:
        shakespeare.load(tmp_path, window=64)
    for part in (str(tmp_path), "tinyshakespeare.txt", "input.txt", "karpathy/char-rnn", "--data", "THINWIRE_DATA"):
        assert part in str(error.value)
    with pytest.raises(ValueError, match="no folder with data sets was given"):
        shakespeare.load(None, window=64)
