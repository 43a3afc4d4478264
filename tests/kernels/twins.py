"""Helpers that run kernels with their torch or numpy twins, and on a given number of threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from unittest import mock

import torch

from thinwire.kernels import compiled, threads

Result = TypeVar("Result")

THREADS = (1, 2, 3)


def with_twins(job: Callable[[], Result]) -> Result:
    """The result of the job with the twins in place of compiled loops."""
    with mock.patch.object(compiled, "_loops", return_value=None):
        return job()


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Use this number of threads, even for short loops."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with mock.patch.object(threads, "LEAST", 1):
            yield
    finally:
        torch.set_num_threads(before)


def on_one_thread(job: Callable[[], Result]) -> Result:
    """The result of the job with torch on a single thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return job()
    finally:
        torch.set_num_threads(before)


def result_or_error(job: Callable[[], Result]) -> Result | str:
    """The result of the job, or the text of its ValueError."""
    try:
        return job()
    except ValueError as error:
        return str(error)
