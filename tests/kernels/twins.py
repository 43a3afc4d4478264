"""A compiled loop beside its plain twin, and on any number of threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from unittest import mock

import torch

from thinwire.kernels import compiled, threads

Result = TypeVar("Result")

THREADS = (1, 2, 3)


def plainly(job: Callable[[], Result]) -> Result:
    """What the plain twins make of it."""
    with mock.patch.object(compiled, "_loops", return_value=None):
        return job()


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """On that many threads, however short the loops are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with mock.patch.object(threads, "LEAST", 1):
            yield
    finally:
        torch.set_num_threads(before)


def on_one_thread(job: Callable[[], Result]) -> Result:
    """What comes of it where torch itself has no other threads to wait for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return job()
    finally:
        torch.set_num_threads(before)


def outcome(job: Callable[[], Result]) -> Result | str:
    """What comes of it, be it an error."""
    try:
        return job()
    except ValueError as error:
        return str(error)
