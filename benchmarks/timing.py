"""Timing that gives fair ratios on a machine with other load."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import torch


def interleaved(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The minimum seconds of each job. Jobs take turns, so that other load affects all of them alike."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeats):
        for name, job in jobs.items():
            start = perf_counter()
            job()
            best[name] = min(best[name], perf_counter() - start)
    return best


@contextmanager
def threads_of_torch(count: int) -> Iterator[None]:
    """Use this number of threads, for torch and for the compiled loops."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
