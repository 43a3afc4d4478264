"""Decode a data set once: later runs, and the other ranks of this one, map the arrays into memory."""

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
    """The arrays that `decode` makes of the sources, read-only; from the cache, if they are there.

    The version is the decoder's: whoever changes what it gives counts it up.
    """
    stem = folder() / f"{name}-{key(sources, version)}"
    paths = [stem.with_name(f"{stem.name}-{array}.npy") for array in arrays]
    with suppress(OSError, ValueError, EOFError):  # not there yet, or cut short by a full disk
        return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]

    fresh = list(decode())
    try:
        for path, array in zip(paths, fresh, strict=True):
            write(path, array)
        return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]
    except OSError as error:
        # Slower and larger, but not wrong: each rank decodes for itself.
        warnings.warn(
            f"the decoded {name} could not be kept in {stem.parent} ({error}), so every process decodes it again and "
            "holds it in memory; THINWIRE_CACHE can name another folder",
            RuntimeWarning,
            stacklevel=2,
        )
        return fresh


def folder() -> Path:
    """Where decoded data sets are kept; it can be deleted at any time."""
    if told := os.environ.get("THINWIRE_CACHE"):
        return Path(told).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "thinwire"
    return Path.home() / ".cache" / "thinwire"


def key(sources: Sequence[Path], version: int) -> str:
    """Differs as soon as a source is another file, or the decoder another one."""
    text = [f"version {version}"]
    for source in sources:
        status = source.stat()
        text.append(f"{source.resolve()} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def write(path: Path, array: Array) -> None:
    """Save an array under a name that only ever stands for the whole file, also when several ranks write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, array, allow_pickle=False)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
