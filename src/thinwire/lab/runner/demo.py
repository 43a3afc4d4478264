"""The demo: several methods, real processes, a link that is really thin where one can be made, one report."""

from pathlib import Path

from rich.console import Console

from thinwire.lab import links, report
from thinwire.lab.recording.runs import FILE, Run
from thinwire.lab.runner import jobs as making
from thinwire.lab.runner.study import cells_of

METHODS = ["dense", "fp16", "int8", "topk", "powersgd", "sign"]
RANKS, STEPS, LINK = 4, 110, "20mbit"


def run(folder: Path, console: Console, ranks: int = RANKS, steps: int = STEPS) -> tuple[list[Run], Path]:
    """Train with each method in real processes; returns the runs, and the page on them."""
    report.check_drawing()
    said = {"workload": "digits-cnn", "methods": METHODS, "ranks": ranks, "steps": steps, "link": LINK}
    reason = links.possible()
    if reason:
        said["modeled"] = True
    how = f"The link is modeled, as none can be made here: {reason}." if reason else "The link is real."
    console.print(
        f"[bold]{len(METHODS)} methods[/], {ranks} processes each over torch.distributed (gloo), joined by "
        f"{LINK.replace('mbit', ' Mbit/s')}: a small CNN on handwritten digits, {steps} steps. {how}\n"
        f"The report will be [bold]{folder / report.PAGE}[/]",
        soft_wrap=True,
    )
    cells = cells_of(said, folder, minutes=0)
    for method in METHODS:  # a demo starts afresh
        for run in (folder / method).rglob(FILE):
            run.unlink()
    runs = making.make_study(cells, console)
    return runs, report.write(folder)
