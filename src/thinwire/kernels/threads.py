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
    threads = max(1, min(torch.get_num_threads(), size // LEAST))
    length = -(-size // (threads * multiple)) * multiple
    starts = range(0, size, length) if size else range(1)
    if len(starts) == 1:
        return [loop(0, size)]
    others = [_pool().submit(loop, start, min(start + length, size)) for start in starts[1:]]
    return [loop(0, length), *(other.result() for other in others)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="thinwire-loops")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of the threads
