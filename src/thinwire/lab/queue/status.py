"""The progress of a queue, and an estimate of the remaining time from the runs measured so far."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group
from rich.markup import escape

from thinwire.lab.queue.queue_file import Item, Queue
from thinwire.lab.queue.runner import is_running
from thinwire.lab.recording.runs import Run
from thinwire.lab.report.number_format import metric_text
from thinwire.lab.report.summary import Figure
from thinwire.lab.runner.comparison import PROGRESS
from thinwire.lab.runner.plan import Plan
from thinwire.lab.tables import plain_table

LEAST = 0.02  # fraction of a run from which its time is estimated: the first steps are slower
DONE, RUNNING, STARTED, LEFT, QUIET, FAILED = "done", "running", "started", "left", "needs a quiet machine", "failed"


@dataclass(frozen=True)
class Progress:
    """The progress of an unfinished run."""

    step: int
    steps: int
    wall: float  # seconds
    at: float  # when this was recorded, in seconds since the epoch

    @property
    def share(self) -> float:
        return self.step / self.steps

    @property
    def total(self) -> float:
        """Seconds that the whole run takes at this speed."""
        return self.wall / self.share


@dataclass(frozen=True)
class Line:
    """One run of the queue."""

    item: Item
    state: str
    run: Run | None = None
    progress: Progress | None = None
    why: str | None = None  # the reason of a failure
    seconds: float | None = None  # estimated time left; None: unknown


@dataclass(frozen=True)
class Status:
    """The status of a queue at one moment."""

    name: str
    lines: tuple[Line, ...]
    unknown: int  # runs whose learning rate is not chosen yet
    is_running: bool

    def count(self, *states: str) -> int:
        return sum(line.state in states for line in self.lines)

    @property
    def left(self) -> list[Line]:
        """The remaining runs that need no further flags."""
        return [line for line in self.lines if line.state in (RUNNING, STARTED, LEFT)]

    @property
    def seconds(self) -> float:
        """Estimated seconds for the remaining runs, without those that cannot be estimated."""
        return sum(line.seconds or 0.0 for line in self.left)

    @property
    def unmeasured(self) -> int:
        """The number of remaining runs whose time cannot be estimated yet."""
        return sum(line.seconds is None for line in self.left) + self.unknown

    def summary(self) -> str:
        total = len(self.lines) + self.unknown
        parts = [f"{self.count(DONE)} of {total} runs done"]
        for state, words in ((RUNNING, "running"), (FAILED, "failed"), (QUIET, "waiting for --quiet-machine")):
            if self.count(state):
                parts.append(f"{self.count(state)} {words}")
        parts.append(f"{self.count(STARTED, LEFT) + self.unknown} left")
        if self.left:
            more = f" and {self.unmeasured} runs not measured yet" if self.unmeasured else ""
            parts.append(f"about {clock(self.seconds)}{more} to go" if self.seconds else "no run measured yet")
        return f"{self.name}: {', '.join(parts)}" + ("" if self.is_running else "; the queue is not running")

    def as_dict(self) -> dict[str, Any]:
        return {
            "queue": self.name,
            "at_work": self.is_running,
            "seconds_left": round(self.seconds),
            "unmeasured": self.unmeasured,
            "runs": [
                {
                    "name": line.item.name,
                    "file": str(line.item.file),
                    "state": line.state,
                    "share": line.progress.share if line.progress else float(line.state == DONE),
                    "seconds_left": None if line.seconds is None else round(line.seconds),
                    "why": line.why,
                    "metrics": line.run.metrics if line.run else None,
                    "took": line.run.took if line.run else None,
                }
                for line in self.lines
            ],
        }

    def shown(self) -> Group:
        """A table with a row for each comparison and method, with the failures below it."""
        table = plain_table()
        for name in ("plans", "method", "done", "metric", "min", "left", ""):
            table.add_column(
                name,
                justify="left" if name in ("plans", "method", "") else "right",
                overflow="fold",
                no_wrap=name not in ("method", ""),
            )
        before = None
        for (plans, method), lines in self._rows().items():
            if before not in (None, plans):
                table.add_section()
            table.add_row("" if plans == before else escape(plans), escape(method), *_cells(lines))
            before = plans
        failed = [f"[red]failed[/] {escape(line.item.name)}: {escape(line.why or '')}" for line in self._failed()]
        caption = "[dim]metric: of the test set, mean ± spread over seeds; min: minutes of a run, with evaluations[/]"
        return Group(escape(self.summary()), table, caption, *failed)

    def _failed(self) -> Iterator[Line]:
        return (line for line in self.lines if line.state == FAILED)

    def _rows(self) -> dict[tuple[str, str], list[Line]]:
        rows: dict[tuple[str, str], list[Line]] = defaultdict(list)
        tuned = {job for line in self.lines for cell in line.item.entry.cells for job in cell.tuned}
        for line in self.lines:
            plan = line.item.job.plan
            link = f" over {plan.link}" if plan.link else ""
            scaled = f" lr x{plan.lr_scale:g}" if line.item.job in tuned or plan.lr_scale != 1 else ""
            rows[f"{line.item.entry.name}{link}", plan.label + scaled].append(line)
        return rows


def status(queue: Queue, name: str) -> Status:
    """The status of a queue, read from its files; changes nothing."""
    running = is_running(queue)
    lines = [_line(item) for item in queue.items()]
    if running:  # the run with the newest progress is the current one
        started = [line for line in lines if line.state == STARTED and line.progress]
        newest = max(started, key=lambda line: line.progress.at if line.progress else 0.0, default=None)
        lines = [replace(line, state=RUNNING) if line is newest else line for line in lines]
    estimate = Estimate(lines)
    return Status(name, tuple(replace(line, seconds=estimate.left(line)) for line in lines), queue.unknown(), running)


def _line(item: Item) -> Line:
    run, failure = item.finished(), item.failure()
    if run is not None:
        return Line(item, DONE, run=run)
    if failure is not None:
        return Line(item, FAILED, why=failure)
    progress = _progress(item.job.folder / PROGRESS)
    if progress is not None:
        return Line(item, STARTED, progress=progress)
    return Line(item, QUIET if item.needs_quiet else LEFT)


def _progress(path: Path) -> Progress | None:
    try:
        return Progress(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):  # not there yet, or of another version
        return None


class Estimate:
    """Estimates the seconds of runs from measured ones: of the same method if there are any, else of the same task."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._measured: dict[Plan, list[float]] = defaultdict(list)
        for line in lines:
            if total := _total(line):
                for key in _keys(line.item.job.plan):
                    self._measured[key].append(total)

    def left(self, line: Line) -> float | None:
        if line.run is not None:
            return 0.0
        if line.progress is not None and (total := _total(line)):
            return total * (1 - line.progress.share)
        known = (self._measured[key] for key in _keys(line.item.job.plan) if key in self._measured)
        return next((fmean(seconds) for seconds in known), None)


def _total(line: Line) -> float | None:
    """Seconds of the whole run, measured or extrapolated; None if too few steps are done."""
    if line.run is not None:
        return line.run.took.get("wall")
    return line.progress.total if line.progress and line.progress.share >= LEAST else None


def _keys(plan: Plan) -> tuple[Plan, Plan]:
    """The plans whose measured times predict that of a run, the most specific one first."""
    same = replace(plan, seed=0, lr_scale=1.0)
    return same, replace(same, method="dense", alone=False, accumulate=1)


def _cells(lines: list[Line]) -> list[str]:
    runs = [line.run for line in lines if line.run]
    minutes = [run.took["wall"] / 60 for run in runs if run.took]
    seconds = [line.seconds for line in lines if line.state in (RUNNING, STARTED, LEFT)]
    left = [value for value in seconds if value is not None]
    return [
        f"{len(runs)}/{len(lines)}",
        _metric(runs),
        f"{fmean(minutes):.1f}" if minutes else "",
        "" if not seconds else clock(sum(left)) if left else "?",
        "; ".join(_notes(lines)),
    ]


def _metric(runs: list[Run]) -> str:
    if not runs:
        return ""
    figure = Figure(tuple(run.metrics[run.metric] for run in runs))
    return metric_text(runs[0].metric, figure.mean, figure.spread)


def _notes(lines: list[Line]) -> Iterator[str]:
    for line in lines:
        if line.progress is not None:
            yield f"seed {line.item.job.plan.seed} {line.state}: {line.progress.share:.0%}"
    for state in (FAILED, QUIET):
        if count := sum(line.state == state for line in lines):
            yield f"{count} {state}"


def clock(seconds: float) -> str:
    """A duration in minutes, or in hours and minutes."""
    minutes = round(seconds / 60)
    if not minutes:
        return "<1 min"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
