"""The overhead of attaching: a step of a 25-million-parameter DDP model, against one with a hook that does nothing.

Two processes on one machine, so the link is free, and the rest is the work of encoding, exchanging and decoding.
"""

import json
import subprocess
import sys

from benchmarks.rows import Row

METHODS = ("dense", "fp16", "int8", "topk", "powersgd")
PLAIN = "plain DDP"


def run() -> list[Row]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*command, "-m", "benchmarks.hook_rank"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the benchmark's processes failed:\n{done.stderr[-3000:]}")
    best = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return [
        Row(f"step with {name} / with a hook that does nothing", best[name] / best["nothing"])
        for name in (PLAIN, *METHODS)
    ]
