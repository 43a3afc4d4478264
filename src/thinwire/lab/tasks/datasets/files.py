"""Reads the user's data files, with an error message of one sentence for what is missing or damaged."""

import lzma
import zipfile
import zlib
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def missing(name: str, folder: Path | None, looked_for: Sequence[str], source: str) -> ValueError:
    """The error for a data set that was not found."""
    where = f"is not in {folder}" if folder else "is needed, and no folder with data sets was given"
    names = ", ".join(looked_for[:-1]) + f" or {looked_for[-1]}"
    return ValueError(f"{name} {where}: looked for {names}. {source}. Name the folder with --data or in THINWIRE_DATA.")


def all_there(files: Sequence[Path]) -> Sequence[Path]:
    """These files; raises ValueError for the first one that is missing."""
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is missing, so the data set is incomplete")
    return files


def npz(path: Path, names: Sequence[str]) -> list[Array]:
    """These arrays of an .npz archive."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, Mapping):
                raise ValueError("it is a single array")
            if absent := [name for name in names if name not in archive]:
                raise ValueError(f"it lacks {', '.join(absent)}")
            return [archive[name] for name in names]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} is not the .npz archive that it should be, or is damaged: {error}") from None


def check(path: Path, what: str, array: Array, dtype: type, shape: Sequence[int | None]) -> None:
    """Raise ValueError for an array of another dtype or shape; None in `shape` allows any length but 0."""
    fits = len(array.shape) == len(shape) and all(
        length == wanted or (wanted is None and length > 0) for length, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits or array.dtype != dtype:
        wanted = ", ".join("N" if length is None else str(length) for length in shape)
        raise ValueError(
            f"{path}: {what} should be {np.dtype(dtype)} [{wanted}], but is {array.dtype} {list(array.shape)}"
        )


def check_classes(path: Path, labels: Array, classes: int) -> None:
    """Raise ValueError for a class number that is too large."""
    if labels.size and int(labels.max()) >= classes:
        raise ValueError(f"{path}: classes should be 0 to {classes - 1}, but there is {int(labels.max())}")


def check_same_length(path: Path, images: Sized, labels: Sized) -> None:
    """Raise ValueError unless there are as many images as labels."""
    if len(images) != len(labels):
        raise ValueError(f"{path}: {len(images)} images, but {len(labels)} labels")
