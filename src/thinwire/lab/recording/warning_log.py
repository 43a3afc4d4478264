"""Collects the warnings of thinwire during a run."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

OURS = Path(__file__).parents[2]


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings that thinwire raises; those of other packages are printed as usual."""
    collected: list[str] = []

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not Path(filename).is_relative_to(OURS):
            print(f"{filename}:{lineno}: {category.__name__}: {message}", file=sys.stderr)
        elif str(message) not in collected:
            collected.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield collected
