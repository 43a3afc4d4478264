"""Processes that others started."""

from collections.abc import Iterator
from pathlib import Path


def below(process: int) -> Iterator[int]:
    """All that a process started, directly or not: ranks of torchrun have sessions of their own."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield from below(child)
            yield child
