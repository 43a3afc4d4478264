"""Long loops, cut among as many threads as torch may use.

numba's own threads abort a process that starts them from several threads at once, as DDP's hook does; a thread pool of
our own does not, and the loops let go of the interpreter's lock.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")

LEAST = 2**16  # elements that are worth a thread


def spread(loop: Callable[[int, int], Result], size: int, multiple: int = 1) -> list[Result]:
    """Call loop(start, stop) for consecutive stretches of range(size), all but the last multiples of a length.

    Returns what each returned, in their order. How many stretches there are depends on the machine: what comes of them
    together must not.
    """
    first, *others = stretches(size, multiple)
    started = [_pool().submit(loop, *stretch) for stretch in others]
    return [loop(*first), *(other.result() for other in started)]


def stretches(size: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Where each of them starts and stops."""
    threads = max(1, min(torch.get_num_threads(), size // LEAST))
    length = max(1, -(-size // (threads * multiple)) * multiple)
    return [(start, min(start + length, size)) for start in range(0, size, length)] or [(0, 0)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="thinwire-loops")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of the threads
