"""What `Replicator.run` adds to a step of ResNet-20 on CIFAR-10's images, beside the same loop written by hand."""

import json
import os
import subprocess
import sys

from benchmarks.rows import Row, at_most

STEPS = 20  # of each and with each model, of which the median counts
BAR = 1.01


def run() -> list[Row]:
    rows = []
    for ranks in (1, 2):
        seconds = measure(ranks)
        ratio = seconds["run"] / seconds["hand"]
        what = "1 process" if ranks == 1 else f"{ranks} processes"
        rows.append(
            Row(
                f"{what}: step by Replicator.run / by hand ({1e3 * seconds['hand']:.0f} ms)", ratio, at_most(ratio, BAR)
            )
        )
    return rows


def measure(ranks: int) -> dict[str, float]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, "-m", "benchmarks.replicator_rank", str(STEPS)]
    ran = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ) | {"OMP_NUM_THREADS": "1"})
    if ran.returncode:
        raise RuntimeError(f"the benchmark's processes failed:\n{ran.stderr[-3000:]}")
    seconds: dict[str, float] = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))
    return seconds
