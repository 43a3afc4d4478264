"""From what a person asked for to finished runs: checks all of it first, then shows how it goes."""

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

import thinwire
from thinwire.lab import links
from thinwire.lab.comparison import Job, run_all
from thinwire.lab.learner import check_server, task_of
from thinwire.lab.plan import Plan, PlanError, plan_of
from thinwire.lab.progress import Shown
from thinwire.lab.runs import Run

COMPARISON = ("methods", "seeds")  # what a comparison says beside what every run in it shares


def job_of(said: Mapping[str, Any], out: Path) -> Job:
    """One run."""
    return Job(plan_of(said), out)


def jobs_of(said: Mapping[str, Any], out: Path) -> list[Job]:
    """A comparison: a run for each method and seed, all else equal."""
    shared = {name: value for name, value in said.items() if name not in COMPARISON}
    methods, seeds = said.get("methods"), said.get("seeds", 1)
    if not isinstance(methods, list) or not methods or not all(isinstance(method, str) for method in methods):
        raise PlanError("a comparison needs methods: --methods A B ..., or methods = [...] in a run file")
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise PlanError(f"seeds takes how many, 1 or more, not {seeds!r}")
    if "method" in shared:
        raise PlanError("a comparison takes methods, not a method")
    repeated = [name for name, count in Counter(map(_folder_name, methods)).items() if count > 1]
    if repeated:
        raise PlanError(f"{repeated[0]} is given twice")
    first = plan_of(shared | {"method": methods[0]}).seed
    return [
        Job(plan_of(shared | {"method": method, "seed": seed}), out / _folder_name(method) / f"seed-{seed}")
        for seed in range(first, first + seeds)
        for method in methods
    ]


def make(jobs: list[Job], console: Console, quiet: bool = False) -> list[Run]:
    """Make the runs; what can be known to go wrong is found before the first one starts."""
    with console.status("reading the data ...") if not quiet else nullcontext():
        check(jobs)
    if quiet:
        return run_all(jobs, lambda job, event: None)
    with Shown(jobs, console) as shown:
        return run_all(jobs, shown.watch)


def check(jobs: list[Job]) -> None:
    """Raise ValueError for whatever would stop a job."""
    for method, ranks in dict.fromkeys((job.plan.method, job.plan.ranks) for job in jobs):
        thinwire.check_placed(thinwire.strategy_of(method), ranks)
    for plan in {replace(job.plan, seed=0): job.plan for job in jobs}.values():
        check_server(plan)
    for plan in {_task(job.plan): job.plan for job in jobs}.values():
        task_of(plan)
    real = [job.plan.link for job in jobs if job.plan.link is not None and not job.plan.modelled]
    reason = links.possible() if real else None
    if reason:
        raise PlanError(
            f"a link of {real[0]} cannot be made here: {reason}. With --modelled, the ranks use the machine's own "
            "network, and the time on the link is computed from the bytes and marked as modelled"
        )


def _task(plan: Plan) -> tuple[Plan, int]:
    """What its task depends on: not the method, but how many ranks it leaves to train."""
    return replace(plan, method="", seed=0), len(thinwire.servers_apart(thinwire.strategy_of(plan.method)))


def _folder_name(method: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", method).strip("-.")
