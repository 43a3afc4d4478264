"""What `Replicator.run` adds to a step of ResNet-20 on CIFAR-10's images, beside the same loop written by hand."""

import json
import os
import subprocess
import sys

from benchmarks.rows import Row, at_most

STEPS = 40  # of each and with each model, of which the median counts
BAR = 1.01


def run() -> list[Row]:
    rows = []
    for ranks in (1, 2):
        seconds = measure(ranks)
        what, hand = "1 process" if ranks == 1 else f"{ranks} processes", 1e3 * seconds["hand"]
        ratio = seconds["run"] / seconds["hand"]
        rows.append(Row(f"{what}: step of {hand:.0f} ms by hand, by Replicator.run", ratio, at_most(ratio, BAR)))
        # The same without the noise of computing: two measurements of one step differ by more than that.
        most = 1 + seconds["added"] / seconds["hand"]
        rows.append(
            Row(
                f"{what}: with the {1e3 * seconds['added']:.2f} ms of a step that does nothing",
                most,
                at_most(most, BAR),
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
