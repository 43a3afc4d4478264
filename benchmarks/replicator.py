"""The overhead of `Replicator.run` on a step of ResNet-20, beside the same loop written by hand."""

import json
import os
import statistics
import subprocess
import sys
from math import sqrt
from typing import Any

from benchmarks.rows import Row, at_most

STEPS, SHORT_STEPS = 60, 400  # of each loop with each model
TARGET = 1.01


def run() -> list[Row]:
    rows = []
    for ranks in (1, 2):
        pairs = measure(ranks)
        what = "1 process" if ranks == 1 else f"{ranks} processes"
        step = statistics.median(hand for hand, _ in pairs["full"])
        ratios = [run / hand for hand, run in pairs["full"]]
        ratio, error = statistics.median(ratios), error_of_median(ratios)
        rows.append(
            Row(
                f"{what}: {len(ratios)} steps of {1e3 * step:.0f} ms by hand, each beside one by Replicator.run: "
                f"{100 * (ratio - 1):+.2f} %, +- {100 * error:.2f}",
                ratio,
                at_most(ratio, TARGET),
            )
        )
        # The overhead does not depend on the time that the model computes: with few images, there is less noise.
        extra = [run - hand for hand, run in pairs["short"]]
        most, error = 1 + statistics.median(extra) / step, error_of_median(extra)
        rows.append(
            Row(
                f"{what}: {1e3 * statistics.median(extra):.2f} ms more in {len(extra)} steps with few images, +- "
                f"{1e3 * error:.2f}, relative to the step above: {100 * (most - 1):+.2f} %",
                most,
                at_most(most, TARGET),
            )
        )
    return rows


def error_of_median(xs: list[float]) -> float:
    """About two standard errors, from quartiles, which outliers (some steps take twice as long) do not affect."""
    low, _, high = statistics.quantiles(xs, n=4)
    return 1.86 * (high - low) / sqrt(len(xs))


def measure(ranks: int) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "benchmarks.replicator_rank", str(STEPS), str(SHORT_STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ) | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"the benchmark's processes failed:\n{done.stderr[-3000:]}")
    pairs: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return pairs
