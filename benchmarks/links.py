"""Two nodes joined by a thin link, 25 million parameters: how many times faster a step is than plain DDP's."""

import json
import subprocess
import sys

from thinwire.lab import links

THEIRS = ("fp32 DDP", "torch fp16 hook", "torch PowerSGD hook")
OURS = ("dense", "fp16", "int8", "topk", "powersgd", "Feedback(PowerSGD(1))")
# At least so many times faster than fp32 DDP, for the best method: on a busy machine, and on a quiet one.
BARS = {"100mbit": (10.0, 25.0), "1gbit": (2.0, 4.0)}
STEPS = {"100mbit": 5, "1gbit": 11}


def run() -> list[tuple[str, float, str]]:
    reason = links.possible()
    if reason:
        return [(f"links, not measured: {reason}", float("nan"), "")]
    rows = []
    for link, (busy, quiet) in BARS.items():
        seconds = measure(link, STEPS[link])
        best = min(OURS, key=lambda name: seconds[name])
        for name in (*THEIRS[1:], *OURS):
            rows.append((f"{link}, 2 nodes: steps of fp32 DDP / of {name}", seconds["fp32 DDP"] / seconds[name], ""))
        speed = seconds["fp32 DDP"] / seconds[best]
        judged = "met, quiet" if speed >= quiet else "met" if speed >= busy else "missed"
        rows.append((f"{link}: the best ({best}) over fp32 DDP", speed, f">= {busy:g}, quiet {quiet:g}: {judged}"))
        for name in THEIRS[1:]:
            rows.append((f"{link}: the best over {name}", seconds[name] / seconds[best], ""))
    return rows


def measure(link: str, steps: int) -> dict[str, float]:
    """The median seconds of a step, by what is attached; all in one run."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "benchmarks.link_rank", json.dumps([[*THEIRS, *OURS], steps])]
    ran = subprocess.run(links.wrapped(command, links.Link.parse(link), 2), capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"the benchmark's processes failed:\n{ran.stderr[-3000:]}")
    told: dict[str, float] = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))
    return told
