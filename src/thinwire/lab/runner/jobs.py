"""From settings to finished runs: checks all plans first, then runs them and shows their progress."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

import thinwire
from thinwire import inspect
from thinwire.lab import links
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner.comparison import Failed, Job, Watch, attempt_all, run_all
from thinwire.lab.runner.learner import task_of
from thinwire.lab.runner.plan import Plan, PlanError, plan_of
from thinwire.lab.runner.plan_checks import check_plan
from thinwire.lab.runner.progress import ProgressBars
from thinwire.lab.runner.run_folder import MINUTES
from thinwire.lab.runner.study import Cell, jobs_in
from thinwire.lab.tasks import workloads


def job_of(settings: Mapping[str, Any], out: Path, minutes: float = MINUTES) -> Job:
    """The job of a single run."""
    return Job(plan_of(settings), out, minutes)


def make(jobs: list[Job], console: Console, quiet: bool = False) -> list[Run]:
    """Execute the runs; every plan is checked before the first run starts."""
    _check(jobs, console, quiet)
    with _shown(jobs, console, quiet) as watch:
        return run_all(jobs, watch)


def make_study(cells: Sequence[Cell], console: Console, quiet: bool = False) -> list[Run]:
    """Execute the runs of a study: first those that tune the learning rate, then all seeds with the best rate."""
    runs: dict[Job, Run] = {}
    failed: dict[Job, str] = {}
    while jobs := [job for job in jobs_in(cells, runs, failed) if job not in runs and job not in failed]:
        _check(jobs, console, quiet)
        if any(len(cell.tuning) > 1 for cell in cells):
            check_validation(jobs)
        with _shown(jobs, console, quiet) as watch:
            made, new_failures = attempt_all(jobs, watch)
        runs, failed = runs | made, failed | new_failures
    if missing := [reason for cell in cells for reason in cell.missing(failed)]:
        raise Failed("\n".join(missing))
    return [runs[job] for job in jobs_in(cells, runs, failed) if job in runs]


def _check(jobs: Sequence[Job], console: Console, quiet: bool) -> None:
    with console.status("reading the data ...") if not quiet else nullcontext():
        check(jobs)


@contextmanager
def _shown(jobs: Sequence[Job], console: Console, quiet: bool) -> Iterator[Watch]:
    if quiet:
        yield lambda job, event: None
        return
    with ProgressBars(jobs, console) as bars:
        yield bars.watch


def check_validation(jobs: Sequence[Job]) -> None:
    """Raise PlanError for a workload without validation examples: learning rates are tuned on them."""
    for plan in {(job.plan.workload, job.plan.budget): job.plan for job in jobs}.values():
        if not workloads.named(plan.workload).budgets[plan.budget].validation:
            raise PlanError(
                f"learning rates are tuned on validation examples, and {plan.workload} has none in the budget "
                f"{plan.budget!r}; the budget plateau has them"
            )


def check(jobs: Sequence[Job]) -> None:
    """Raise ValueError for a job that cannot be run."""
    for plan in {replace(job.plan, seed=0): job.plan for job in jobs}.values():
        check_plan(plan)
    for plan in {_task(job.plan): job.plan for job in jobs}.values():
        task_of(plan)
    real = [job.plan.link for job in jobs if job.plan.link is not None and not job.plan.modeled]
    reason = links.possible() if real else None
    if reason:
        raise PlanError(
            f"a link of {real[0]} cannot be created here: {reason}. With --modeled, the ranks use the machine's own "
            "network, and the time on the link is computed from the bytes and marked as modeled"
        )


def _task(plan: Plan) -> tuple[Plan, int]:
    """What the task of a plan depends on: of the method, only the number of dedicated servers."""
    return replace(plan, method="dense", seed=0), len(inspect.dedicated_servers(thinwire.strategy_of(plan.method)))
