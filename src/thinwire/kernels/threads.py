"""Long loops, cut among as many threads as torch may use.

numba's own threads abort a process that starts them from several threads at once, as DDP's hook does; a thread pool of
our own does not, and the loops let go of the interpreter's lock.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar, cast

import torch

Result = TypeVar("Result")

LEAST = 2**16  # elements that are worth a thread
LONG = 2**20  # elements of a stretch, if there are more of them than threads
TURNS = 4  # stretches for each thread, at most: a thread that is held up leaves some to the others


def spread(loop: Callable[[int, int], Result], size: int, multiple: int = 1) -> list[Result]:
    """Call loop(start, stop) for consecutive stretches of range(size), all but the last multiples of a length.

    Returns what each returned, in their order; or raises what one raised, when none is at work any more. How many
    stretches there are depends on the machine: what comes of them together must not.
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
    finally:  # one that has not begun has nothing left to do; what the others write to may be used anew from here on
        begun = [other for other in others if not other.cancel()]
        wait(begun)
    for other in begun:
        other.result()
    return cast(list[Result], results)


def stretches(size: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Where each of them starts and stops."""
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
