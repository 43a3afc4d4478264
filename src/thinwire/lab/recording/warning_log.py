"""What thinwire warns of while a run goes on."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

OURS = Path(__file__).parents[2]


@contextmanager
def told_warnings() -> Iterator[list[str]]:
    """Collect what thinwire warns of, as it does; what others warn of is printed, as it would be without this."""
    told: list[str] = []

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
        elif str(message) not in told:
            told.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield told
