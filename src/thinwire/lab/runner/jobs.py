"""From what a person asked for to finished runs: checks all of it first, then shows how it goes."""

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
from thinwire.lab.runner.progress import Shown
from thinwire.lab.runner.run_folder import MINUTES
from thinwire.lab.runner.study import Cell, jobs_in
from thinwire.lab.tasks import workloads


def job_of(said: Mapping[str, Any], out: Path, minutes: float = MINUTES) -> Job:
    """One run."""
    return Job(plan_of(said), out, minutes)


def make(jobs: list[Job], console: Console, quiet: bool = False) -> list[Run]:
    """Make the runs; what can be known to go wrong is found before the first one starts."""
    _check(jobs, console, quiet)
    with _shown(jobs, console, quiet) as watch:
        return run_all(jobs, watch)


def make_study(cells: Sequence[Cell], console: Console, quiet: bool = False) -> list[Run]:
    """Make the runs of a study: those that learning rates are chosen by first, then all seeds with the best."""
    runs: dict[Job, Run] = {}
    failed: dict[Job, str] = {}
    while jobs := [job for job in jobs_in(cells, runs, failed) if job not in runs and job not in failed]:
        _check(jobs, console, quiet)
        if any(len(cell.tuning) > 1 for cell in cells):
            check_validated(jobs)
        with _shown(jobs, console, quiet) as watch:
            made, missed = attempt_all(jobs, watch)
        runs, failed = runs | made, failed | missed
    if missing := [told for cell in cells for told in cell.not_made(failed)]:
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
    with Shown(jobs, console) as shown:
        yield shown.watch


def check_validated(jobs: Sequence[Job]) -> None:
    """Raise PlanError if there is nothing to choose learning rates by."""
    for plan in {(job.plan.workload, job.plan.budget): job.plan for job in jobs}.values():
        if not workloads.named(plan.workload).budgets[plan.budget].validation:
            raise PlanError(
                f"learning rates are chosen by validation, and {plan.workload} holds nothing back for it in the budget "
                f"{plan.budget!r}; plateau does"
            )


def check(jobs: Sequence[Job]) -> None:
    """Raise ValueError for whatever would stop a job."""
    for plan in {replace(job.plan, seed=0): job.plan for job in jobs}.values():
        check_plan(plan)
    for plan in {_task(job.plan): job.plan for job in jobs}.values():
        task_of(plan)
    real = [job.plan.link for job in jobs if job.plan.link is not None and not job.plan.modeled]
    reason = links.possible() if real else None
    if reason:
        raise PlanError(
            f"a link of {real[0]} cannot be made here: {reason}. With --modeled, the ranks use the machine's own "
            "network, and the time on the link is computed from the bytes and marked as modeled"
        )


def _task(plan: Plan) -> tuple[Plan, int]:
    """What its task depends on: not the method, but how many ranks it leaves to train."""
    return replace(plan, method="dense", seed=0), len(inspect.dedicated_servers(thinwire.strategy_of(plan.method)))
