"""Decodes a data set once: later runs and other ranks map the arrays into memory."""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from thinwire.lab.tasks.datasets.files import Array


def decoded(
    name: str, sources: Sequence[Path], version: int, arrays: Sequence[str], decode: Callable[[], Sequence[Array]]
) -> list[Array]:
    """The arrays that `decode` returns for the sources, read-only, and from the cache if possible.

    `version` is that of the decoder: increase it whenever the result of `decode` changes.
    """
    stem = folder() / f"{name}-{key(sources, version)}"
    paths = [stem.with_name(f"{stem.name}-{array}.npy") for array in arrays]
    with suppress(OSError, ValueError, EOFError):  # missing, or truncated by a full disk
        return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]

    fresh = list(decode())
    try:
        for path, array in zip(paths, fresh, strict=True):
            write(path, array)
        return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]
    except OSError as error:
        # Slower and with more memory, but correct: each rank decodes for itself.
        warnings.warn(
            f"the decoded {name} could not be saved in {stem.parent} ({error}), so every process decodes it again and "
            "keeps it in memory; THINWIRE_CACHE can name another folder",
            RuntimeWarning,
            stacklevel=2,
        )
        return fresh


def folder() -> Path:
    """The folder of decoded data sets; it can be deleted at any time."""
    if own := os.environ.get("THINWIRE_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "thinwire"
    return Path.home() / ".cache" / "thinwire"


def key(sources: Sequence[Path], version: int) -> str:
    """A hash of the sources (path, size, time of change) and of the decoder's version."""
    text = [f"version {version}"]
    for source in sources:
        status = source.stat()
        text.append(f"{source.resolve()} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def write(path: Path, array: Array) -> None:
    """Save an array atomically, even if several ranks write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, array, allow_pickle=False)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
