import errno
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from thinwire.lab.tasks.datasets import cache


class Decoder:
    """Counts its calls."""

    def __init__(self, *arrays):
        self.arrays, self.calls = arrays, 0

    def __call__(self):
        self.calls += 1
        return self.arrays


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.bin"
    path.write_bytes(b"content")
    return path


@pytest.fixture
def decoder():
    return Decoder(np.arange(12, dtype=np.uint8).reshape(3, 4), np.ones(3, np.uint8))


def load(source, decoder, version=1):
    return cache.decoded("things", [source], version, ["x", "y"], decoder)


def test_a_second_load_maps_the_decoded_arrays(source, decoder):
    first, second = load(source, decoder), load(source, decoder)
    assert decoder.calls == 1
    for arrays in (first, second):
        assert all(isinstance(array, np.memmap) for array in arrays)
        assert np.array_equal(arrays[0], decoder.arrays[0])
        assert np.array_equal(arrays[1], decoder.arrays[1])


def test_a_changed_file_or_decoder_is_decoded_again(source, decoder, tmp_path):
    load(source, decoder)
    load(source, decoder, version=2)
    assert decoder.calls == 2
    source.write_bytes(b"longer content")
    load(source, decoder)
    assert decoder.calls == 3
    os.utime(source, ns=(1, 1))
    load(source, decoder)
    assert decoder.calls == 4
    (tmp_path / "copy.bin").write_bytes(source.read_bytes())
    os.utime(tmp_path / "copy.bin", ns=(1, 1))
    load(tmp_path / "copy.bin", decoder)
    assert decoder.calls == 5


@pytest.mark.parametrize("left", [0, 20, 130])
def test_a_truncated_cache_file_is_written_again(source, decoder, own_cache, left):
    load(source, decoder)
    broken = next(own_cache.glob("*-x.npy"))
    broken.write_bytes(broken.read_bytes()[:left])
    assert np.array_equal(load(source, decoder)[0], decoder.arrays[0])
    assert decoder.calls == 2
    assert load(source, decoder)
    assert decoder.calls == 2, "repaired"


def test_a_second_rank_does_not_disturb_the_first(source, decoder):
    other = []

    def overtaken():
        other.append(load(source, decoder))  # another rank finishes while this one decodes
        return decoder.arrays

    mine = load(source, overtaken)
    assert np.array_equal(mine[0], decoder.arrays[0])
    assert np.array_equal(other[0][0], decoder.arrays[0])


def test_the_cache_folder_has_only_the_arrays(source, decoder, own_cache):
    load(source, decoder)
    assert sorted(path.name.rpartition("-")[2] for path in own_cache.iterdir()) == ["x.npy", "y.npy"]


def test_without_a_writable_cache_the_arrays_stay_in_memory(source, decoder, tmp_path, monkeypatch):
    occupied = tmp_path / "a file"
    occupied.write_text("")
    monkeypatch.setenv("THINWIRE_CACHE", str(occupied))
    with pytest.warns(RuntimeWarning, match=r"things could not be saved in .*a file.*THINWIRE_CACHE"):
        arrays = load(source, decoder)
    assert arrays == list(decoder.arrays)


def test_a_full_disk_leaves_no_partial_file(source, decoder, own_cache, monkeypatch):
    def save(file, array, **_):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", save)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert load(source, decoder) == list(decoder.arrays)
    assert list(own_cache.iterdir()) == []


def test_a_failing_decoder_leaves_no_file(source, own_cache):
    def fails():
        raise ValueError("source.bin is damaged")

    with warnings.catch_warnings(), pytest.raises(ValueError, match="is damaged"):
        load(source, fails)
    assert list(own_cache.iterdir()) == []


def test_the_folder_comes_from_environment_variables_in_order(monkeypatch):
    monkeypatch.setenv("THINWIRE_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache.folder() == Path("/own")
    monkeypatch.delenv("THINWIRE_CACHE")
    assert cache.folder() == Path("/shared/thinwire")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "thinwire"
