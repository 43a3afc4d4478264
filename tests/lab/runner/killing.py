"""The descendants of a process."""

from collections.abc import Iterator
from pathlib import Path


def descendants(process: int) -> Iterator[int]:
    """All processes that a process started, directly or not; torchrun's ranks have their own sessions."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield from descendants(child)
            yield child
