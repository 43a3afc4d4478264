"""What `Replicator.run` adds to a step of ResNet-20 on CIFAR-10's images, beside the same loop written by hand."""

import json
import os
import statistics
import subprocess
import sys
from math import sqrt
from typing import Any

from benchmarks.rows import Row, at_most

STEPS, SHORT_STEPS = 60, 400  # of each and with each model
BAR = 1.01


def run() -> list[Row]:
    rows = []
    for ranks in (1, 2):
        told = measure(ranks)
        what = "1 process" if ranks == 1 else f"{ranks} processes"
        step = statistics.median(hand for hand, _ in told["whole"])
        ratios = [run / hand for hand, run in told["whole"]]
        ratio, error = statistics.median(ratios), error_of_median(ratios)
        rows.append(
            Row(
                f"{what}: {len(ratios)} steps of {1e3 * step:.0f} ms by hand, each beside one by Replicator.run: "
                f"{100 * (ratio - 1):+.2f} %, give or take {100 * error:.2f}",
                ratio,
                at_most(ratio, BAR),
            )
        )
        # What is added does not depend on how long the model computes: with few images, there is less noise around it.
        added = [run - hand for hand, run in told["short"]]
        most, error = 1 + statistics.median(added) / step, error_of_median(added)
        rows.append(
            Row(
                f"{what}: {1e3 * statistics.median(added):.2f} ms more in {len(added)} steps with few images, give or "
                f"take {1e3 * error:.2f}, beside the step above: {100 * (most - 1):+.2f} %",
                most,
                at_most(most, BAR),
            )
        )
    return rows


def error_of_median(xs: list[float]) -> float:
    """About two standard errors, from quartiles: some steps take twice as long, and tell nothing of the others."""
    low, _, high = statistics.quantiles(xs, n=4)
    return 1.86 * (high - low) / sqrt(len(xs))


def measure(ranks: int) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "benchmarks.replicator_rank", str(STEPS), str(SHORT_STEPS)]
    ran = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ) | {"OMP_NUM_THREADS": "1"})
    if ran.returncode:
        raise RuntimeError(f"the benchmark's processes failed:\n{ran.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))
    return told
