"""The demo: several methods, real processes, one table, one picture, one page."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from thinwire.lab import report
from thinwire.lab.runs import Run
from thinwire.methods import METHODS

NAMES = ("dense", "fp16", "int8", "topk", "powersgd", "sign")
RANKS, STEPS, SEED = 4, 176, 1  # 16 epochs


class DemoError(RuntimeError):
    """A run of the demo failed; the message holds what the processes last said."""


def run(folder: Path, console: Console, ranks: int = RANKS, steps: int = STEPS) -> dict[str, Run]:
    """Train with each method in real processes; saves a run each, the picture and the page, returns the runs."""
    report.check_drawing()
    methods = {name: repr(METHODS[name].reducer) for name in NAMES}
    plan = {"methods": methods, "steps": steps, "seed": SEED, "folder": str(folder)}
    console.print(
        f"[bold]{len(methods)} methods[/], {ranks} processes each over torch.distributed (gloo): a small CNN on "
        f"handwritten digits, {steps} steps."
    )
    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bars = {name: progress.add_task(name, total=steps, start=False, loss="") for name in methods}
        for event in events(plan, ranks):
            bar = bars[event["method"]]
            if event.get("done"):
                for warning in event["warnings"]:
                    progress.console.print(f"[yellow]{event['method']}: {warning}")
                continue
            progress.start_task(bar)
            progress.update(bar, completed=event["step"], loss=f"loss {event['loss']:.3f}")
            if event["step"] == steps:
                progress.stop_task(bar)
    runs = {name: Run.load(folder / name / "run.json") for name in methods}
    report.write(runs, folder, command="thinwire demo")
    return runs


def events(plan: dict[str, object], ranks: int) -> Iterator[dict]:  # type: ignore[type-arg]  # JSON
    """Start the ranks with torchrun; yields what rank 0 tells, until all have ended."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "thinwire.lab.demo_rank", json.dumps(plan)]
    # All ranks are on this machine: one thread each, and the loopback interface whatever the host is called.
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback, "TORCH_CPP_LOG_LEVEL": "ERROR"} | os.environ
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as started,
    ):
        assert started.stdout is not None
        try:
            for line in started.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            if started.wait():
                log.seek(0)
                raise DemoError(f"the demo's processes failed; they last said:\n{_last_words(log.read())}")
        finally:
            started.terminate()  # where it has ended already, this does nothing


def _last_words(log: str) -> str:
    """What the ranks said before torchrun noticed that they had failed."""
    said = log.split("torch/distributed/elastic")[0].splitlines()
    return "\n".join(said[-30:])
