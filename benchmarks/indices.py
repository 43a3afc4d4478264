"""Positions of 1 % of 25 million entries, encoded and decoded, against copying the tensor once; and their size.

The lower bound of their size is the entropy of random positions, which these are.
"""

from collections.abc import Callable
from math import log2

import torch

from benchmarks.rows import Row, at_most
from benchmarks.timing import interleaved, threads_of_torch
from thinwire.kernels import gaps, positions

SIZE, DENSITY = 25_000_000, 0.01
TIME_TARGET, SIZE_TARGET = 0.25, 1.03


def run(repeats: int = 25) -> list[Row]:
    x = torch.rand(SIZE, generator=torch.Generator().manual_seed(0))
    target = torch.empty_like(x)
    where = (x < DENSITY).nonzero().squeeze(1)
    count = where.numel()
    by_gaps, by_counts = gaps.encode(where, SIZE), positions.encode(where, SIZE)
    jobs: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(x),
        "as gaps (SparseSign)": lambda: gaps.decode(*gaps.encode(where, SIZE), SIZE),
        "in a fixed size (TopK)": lambda: positions.decode(positions.encode(where, SIZE), count, SIZE),
    }
    rows = []
    for threads in (1, 2):
        with threads_of_torch(threads):
            best = interleaved(jobs, repeats)
        on = f"{threads} thread{'s' * (threads > 1)}"
        for name, seconds in best.items():
            if name != "copy":
                ratio = seconds / best["copy"]
                rows.append(
                    Row(f"positions {name}, encoded and decoded, {on} / copy", ratio, at_most(ratio, TIME_TARGET))
                )
    p = count / SIZE
    least = -SIZE * (p * log2(p) + (1 - p) * log2(1 - p)) / 8
    shorter = sum(part.numel() for part in by_gaps) / least
    rows.append(Row("bytes of positions as gaps / the lower bound", shorter, at_most(shorter, SIZE_TARGET)))
    rows.append(Row("bytes of positions in a fixed size / the lower bound", by_counts.numel() / least))
    return rows
