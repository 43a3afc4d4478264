"""Two nodes over a slow link, 25 million parameters: the speed-up of a step over plain DDP."""

import json
import subprocess
import sys
from collections.abc import Iterable

from benchmarks.rows import Row, at_least_if_quiet
from thinwire.lab import links

THEIRS = ("fp32 DDP", "torch fp16 hook", "torch PowerSGD hook")
OURS = ("dense", "fp16", "int8", "topk", "powersgd", "ErrorFeedback(PowerSGD(1))")
# Minimum speed-up of the best method over fp32 DDP: on a busy machine, and on a quiet one.
TARGETS = {"100mbit": (10.0, 25.0), "1gbit": (2.0, 4.0)}
STEPS = {"100mbit": 3, "1gbit": 11}  # the median step counts


def run() -> list[Row]:
    reason = links.possible()
    if reason:
        return [Row(f"links, not measured: {reason}", float("nan"))]
    rows = []
    for link, (busy, quiet) in TARGETS.items():
        seconds, _ = measure((*THEIRS, *OURS), link, STEPS[link])
        best = min(OURS, key=lambda name: seconds[name])
        for name in (*THEIRS[1:], *OURS):
            rows.append(Row(f"{link}, 2 nodes: step of fp32 DDP / of {name}", seconds["fp32 DDP"] / seconds[name]))
        speed = seconds["fp32 DDP"] / seconds[best]
        rows.append(
            Row(f"{link}: step of fp32 DDP / of the best, {best}", speed, at_least_if_quiet(speed, busy, quiet))
        )
        for name in THEIRS[1:]:
            rows.append(Row(f"{link}: step of {name} / of the best", seconds[name] / seconds[best]))
    return rows


def measure(
    names: Iterable[str], link: str, steps: int, nodes: int = 2
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """The median seconds of a step, and the mean seconds of encoding and decoding, by attached method, in one run."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nodes)]
    command += ["-m", "benchmarks.link_rank", json.dumps([[*names], steps])]
    done = subprocess.run(links.wrapped(command, links.Link.parse(link), nodes), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the benchmark's processes failed:\n{done.stderr[-3000:]}")
    seconds, coding = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[{")))
    return seconds, coding
