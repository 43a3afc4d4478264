"""Progress bars for runs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from thinwire.lab.report import human
from thinwire.lab.report.number_format import metric_name, metric_text
from thinwire.lab.runner.comparison import Job

LONGEST = 21  # characters of a method's name


class ProgressBars:
    """A bar for each job, with loss, metric and bytes so far."""

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )
        self.progress = Progress(*columns, console=console)
        several = len({job.plan.seed for job in jobs}) > 1
        self.bars: dict[Job, TaskID] = {}
        for job in jobs:
            name = _short(_named(job)) + (f" #{job.plan.seed}" if several else "")
            self.bars[job] = self.progress.add_task(escape(name), total=None, start=False, figures="", visible=False)
        self.metrics: dict[Job, str] = {}
        self.figures: dict[Job, dict[str, str]] = {job: {} for job in jobs}

    def __enter__(self) -> "ProgressBars":
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def watch(self, job: Job, event: dict[str, Any]) -> None:
        bar, figures = self.bars[job], self.figures[job]
        if "kept" in event:
            self.progress.update(bar, total=1, completed=1, visible=True, figures="[dim]finished before, kept")
        if "steps" in event:
            self.progress.update(bar, total=event["steps"], visible=True)
            self.metrics[job] = event["metric"]
            self.progress.start_task(bar)
        if "resumed" in event:
            figures["resumed"] = f"[dim]from step {event['resumed']}[/]"
            self.progress.update(bar, completed=event["resumed"])
        if "loss" in event:
            if event["loss"] is not None:  # a dedicated server has none
                figures["loss"] = f"loss {event['loss']:.2f}"
            figures["bytes"] = human(event["payload_bytes"])
            self.progress.update(bar, completed=event["step"])
        elif "step" in event:
            name = self.metrics[job]
            figures["metric"] = f"{metric_name(name.removeprefix('test_'))} {metric_text(name, event[name])}"
        if "failed" in event:
            figures["failed"] = "[red]failed"
        if "done" in event or "failed" in event:
            self.progress.stop_task(bar)
        if figures:
            order = ("failed", "resumed", "loss", "metric", "bytes")
            self.progress.update(bar, figures="  ".join(figures[name] for name in order if name in figures))


def _named(job: Job) -> str:
    scale = job.plan.lr_scale
    return job.plan.label if scale == 1 else f"{job.plan.label} lr x{scale:g}"


def _short(method: str) -> str:
    """The name, cut off if it would leave no room for the figures."""
    return method if len(method) <= LONGEST else method[: LONGEST - 1] + "…"
