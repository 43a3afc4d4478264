"""Several runs, one after the other, each in its folder; what is finished stays, and is not run again."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import thinwire
from thinwire.lab import processes, simulation
from thinwire.lab.plan import Plan, PlanError
from thinwire.lab.runs import Run
from thinwire.lab.workloads.own import digest

PLAN, LOG = "run.toml", "log.txt"


@dataclass(frozen=True)
class Job:
    """A plan, and the folder that its run goes to."""

    plan: Plan
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.plan.method}, seed {self.plan.seed}"

    def begin(self) -> None:
        """Make the folder, with what is needed to repeat the run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / PLAN).write_text(self.plan.to_toml())
        (self.folder / LOG).write_text(f"# {self.plan.command()}\n")

    def log(self, event: dict[str, Any]) -> None:
        """Add to the log what was said, and each evaluation."""
        line = event.get("said") or event.get("failed") or (_shown(event) if _is_evaluation(event) else None)
        if line:
            with (self.folder / LOG).open("a") as file:
                file.write(line.rstrip("\n") + "\n")

    def finished(self) -> Run | None:
        """The run, if it was made before by the same plan."""
        if not (self.folder / "run.json").exists():
            return None
        noted = self.folder / PLAN
        if not noted.exists() or noted.read_text() != self.plan.to_toml():
            raise PlanError(
                f"{self.folder} holds a run of another plan; choose another folder with --out, or remove that one"
            )
        run = Run.load(self.folder / "run.json")
        method = thinwire.methods.notation_of(thinwire.strategy_of(self.plan.method))
        for what, then, now in (
            ("version of thinwire", run.version, thinwire.__version__),
            ("method of that name", run.method, method),
            (f"{self.plan.workload}", run.source, digest(self.plan.workload)),
        ):
            if then != now:
                raise PlanError(
                    f"{self.folder} holds a run of another {what} ({then[:60] or 'none'}, now {now[:60] or 'none'}); "
                    "choose another folder with --out, or remove that one"
                )
        return run


class Failed(RuntimeError):
    """Some runs did not come to their end; the message tells of each."""


# Called with a job and what its run tells: begins, step, loss, metrics, said, done, failed.
Watch = Callable[[Job, dict[str, Any]], None]


def run_all(jobs: list[Job], watch: Watch) -> list[Run]:
    """Make the runs that are not there yet; returns all of them, in the order of the jobs."""
    runs: dict[Job, Run] = {}
    for job in jobs:
        there = job.finished()
        if there is not None:
            runs[job] = there
            watch(job, {"kept": True})
    open_jobs = [job for job in jobs if job not in runs]
    failures: list[str] = []
    # Ranks that are there already take the next plan as well, if it asks for as many of them over the same link.
    for _, alike in groupby(open_jobs, key=lambda job: _ranks_of(job.plan)):
        waiting = list(alike)
        while waiting:
            waiting = _run_some(waiting, runs, failures, watch)
    if failures:
        raise Failed("\n".join(failures))
    return [runs[job] for job in jobs]


def _run_some(jobs: list[Job], runs: dict[Job, Run], failures: list[str], watch: Watch) -> list[Job]:
    """Run jobs until one breaks its ranks; returns those that have not had their turn."""
    current: int | None = None

    def hear(event: dict[str, Any]) -> None:
        nonlocal current
        current = event.get("begins", current)
        if current is None:  # what is said before the first run begins is told if it never does
            return
        job = jobs[current]
        if "begins" in event:
            job.begin()
        job.log(event)
        if "failed" in event:
            failures.append(f"{job.name}: {event['failed']}")
        if "done" in event:
            runs[job] = Run(**event["done"])
            runs[job].save(job.folder)
        watch(job, event)

    plans = [job.plan for job in jobs]
    try:
        (processes if plans[0].transport == "processes" else simulation).run(plans, hear, [job.folder for job in jobs])
    except processes.RanksError as error:
        if current is None:
            raise
        job = jobs[current]
        if job in runs:  # it had come to its end before; if the next ones cannot even begin, they will raise
            return jobs[current + 1 :]
        job.log({"failed": str(error)})
        watch(job, {"failed": str(error)})
        failures.append(f"{job.name}: {error} ({job.folder / LOG} has all that was said)")
        return jobs[current + 1 :]
    return []


def _is_evaluation(event: dict[str, Any]) -> bool:
    return "step" in event and "loss" not in event


def _shown(event: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in event.items())


def _ranks_of(plan: Plan) -> tuple[Any, ...]:
    return plan.transport, plan.ranks, plan.link, plan.modelled, plan.threads
