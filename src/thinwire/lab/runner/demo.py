"""The demo: several methods in real processes, over a rate-limited link where one can be created, and a report."""

from pathlib import Path

from rich.console import Console

from thinwire.lab import links, report
from thinwire.lab.recording.runs import FILE, Run
from thinwire.lab.runner import jobs
from thinwire.lab.runner.study import cells_of

METHODS = ["dense", "fp16", "int8", "topk", "powersgd", "sign"]
RANKS, STEPS, LINK = 4, 110, "20mbit"


def run(folder: Path, console: Console, ranks: int = RANKS, steps: int = STEPS) -> tuple[list[Run], Path]:
    """Train with each method in real processes; returns the runs and the path of their report."""
    report.check_drawing()
    settings = {"workload": "digits-cnn", "methods": METHODS, "ranks": ranks, "steps": steps, "link": LINK}
    reason = links.possible()
    if reason:
        settings["modeled"] = True
    how = f"The link is modeled, as none can be created here: {reason}." if reason else "The link is real."
    console.print(
        f"[bold]{len(METHODS)} methods[/], {ranks} processes each over torch.distributed (gloo), connected at "
        f"{LINK.replace('mbit', ' Mbit/s')}: a small CNN on handwritten digits, {steps} steps. {how}\n"
        f"The report will be [bold]{folder / report.PAGE}[/]",
        soft_wrap=True,
    )
    cells = cells_of(settings, folder, minutes=0)
    for method in METHODS:  # a demo repeats its runs
        for run in (folder / method).rglob(FILE):
            run.unlink()
    runs = jobs.make_study(cells, console)
    return runs, report.write(folder)
