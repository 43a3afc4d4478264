"""Fair ratios on a machine that has other things to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import torch


def interleaved(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least seconds of each job; they take turns, so that all meet the same disturbances."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeats):
        for name, job in jobs.items():
            start = perf_counter()
            job()
            best[name] = min(best[name], perf_counter() - start)
    return best


@contextmanager
def threads_of_torch(count: int) -> Iterator[None]:
    """As many threads as that, for torch and for the loops."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
