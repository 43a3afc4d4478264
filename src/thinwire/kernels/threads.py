"""Long loops, divided between as many threads as torch may use.

numba's own threads abort a process that starts them from several threads at once, as DDP's hook does. So this is a
thread pool of Python's, and the loops release the GIL.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar, cast

import torch

Result = TypeVar("Result")

LEAST = 2**16  # elements that are worth a thread
LONG = 2**20  # elements per stretch, where there are more stretches than threads
TURNS = 4  # stretches per thread, at most: others take over from a thread that is delayed


def spread(loop: Callable[[int, int], Result], size: int, multiple: int = 1) -> list[Result]:
    """Call loop(start, stop) for consecutive stretches of range(size); all lengths but the last are multiples.

    Returns the results in order. If a call raises, raises that once no thread is running any more. The number of
    stretches depends on the machine, so the combined result must not depend on it.
    """
    threads = _threads(size)
    if threads == 1:
        return [loop(0, size)]
    cut = stretches(size, multiple)
    results: list[Result | None] = [None] * len(cut)
    turns = iter(enumerate(cut))

    def work() -> None:
        for i, stretch in turns:
            results[i] = loop(*stretch)

    others = [_pool().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:  # the caller may reuse the memory that loops write to, so wait for those that have started
        started = [other for other in others if not other.cancel()]
        wait(started)
    for other in started:
        other.result()
    return cast(list[Result], results)


def stretches(size: int, multiple: int = 1) -> list[tuple[int, int]]:
    """The start and stop of each stretch."""
    threads = _threads(size)
    number = 1 if threads == 1 else min(TURNS * threads, max(threads, size // LONG))
    length = max(1, -(-size // (number * multiple)) * multiple)
    return [(start, min(start + length, size)) for start in range(0, size, length)] or [(0, 0)]


def _threads(size: int) -> int:
    return max(1, min(torch.get_num_threads(), size // LEAST))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="thinwire-loops")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of the threads
