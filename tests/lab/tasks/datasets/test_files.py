import zipfile

import numpy as np
import pytest

from thinwire.lab.tasks.datasets.files import check, npz


def test_arrays_are_returned_in_the_requested_order(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones(2))
    y, x = npz(tmp_path / "a.npz", ["y", "x"])
    assert list(x) == [0, 1, 2]
    assert list(y) == [1, 1]


def test_archives_compressed_with_lzma_are_read(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1000))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.write(tmp_path / "x.npy", "x.npy")
    assert np.array_equal(npz(tmp_path / "a.npz", ["x"])[0], np.arange(1000))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_an_archive_with_a_damaged_byte_is_an_error(tmp_path, compression):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, 5000, np.uint8))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
        archive.write(tmp_path / "x.npy", "x.npy")
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz .* damaged"):
        npz(tmp_path / "a.npz", ["x"])


def test_an_incomplete_or_damaged_archive_is_an_error(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(3))
    with pytest.raises(ValueError, match=r"a\.npz .* lacks y, z"):
        npz(path, ["x", "y", "z"])

    content = path.read_bytes()
    for damaged in (content[:-40], b"", b"some text"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.npz is not the \.npz archive"):
            npz(path, ["x"])

    with path.open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(ValueError, match="a single array"):
        npz(path, ["x"])


def test_an_archive_of_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"an": "object"}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        npz(tmp_path / "a.npz", ["x"])


def test_dtype_and_every_length_are_checked(tmp_path):
    path = tmp_path / "a.npz"
    check(path, "x", np.zeros((5, 4), np.uint8), np.uint8, (None, 4))
    for wrong in (np.zeros((5, 4)), np.zeros((5, 3), np.uint8), np.zeros((0, 4), np.uint8), np.zeros(4, np.uint8)):
        with pytest.raises(ValueError, match=r"a\.npz: x should be uint8 \[N, 4\], but is"):
            check(path, "x", wrong, np.uint8, (None, 4))
