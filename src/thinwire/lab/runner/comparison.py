"""Several runs, one after the other, each in its folder; what is finished stays, and is not run again."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import thinwire
from thinwire.lab.recording.runs import FILE, Run, write_whole
from thinwire.lab.runner import processes, simulation
from thinwire.lab.runner.plan import Plan, PlanError, plan_of
from thinwire.lab.runner.run_folder import CHECKPOINTS, MINUTES, Place
from thinwire.lab.tasks.workloads.user_task import digest

PLAN, LOG, BEGUN, PROGRESS = "run.toml", "log.txt", "begun.json", "progress.json"
PROGRESS_EVERY = 5.0  # seconds
DIVERGED = "diverged: "  # begins the reason of a failure that another learning rate may not have


@dataclass(frozen=True)
class Job:
    """A plan, and the folder that its run goes to."""

    plan: Plan
    folder: Path
    minutes: float = MINUTES  # between two checkpoints

    @property
    def name(self) -> str:
        return f"{self.plan.label}, seed {self.plan.seed}"

    @property
    def place(self) -> Place:
        return Place(self.folder, self.minutes)

    def begin(self) -> None:
        """Make the folder, with what is needed to repeat the run; one that was begun goes on in its own."""
        goes_on = self.begun()
        if not goes_on:
            shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / PLAN).write_text(self.plan.to_toml())
        write_whole(self.folder / BEGUN, json.dumps(self._identity(), indent=1) + "\n")
        if not goes_on:
            (self.folder / LOG).write_text(f"# {self.plan.command()}\n")

    def log(self, event: dict[str, Any]) -> None:
        """Add to the log what was said, each evaluation, and where the run went on."""
        line = event.get("said") or event.get("failed") or (_shown(event) if _is_evaluation(event) else None)
        if "resumed" in event:
            line = f"# resumed from the checkpoint after step {event['resumed']}"
        if line:
            with (self.folder / LOG).open("a") as file:
                file.write(line.rstrip("\n") + "\n")

    def show_progress(self, event: dict[str, Any], steps: int) -> None:
        """Leave in the folder how far the run is, for whoever looks from outside."""
        progress = {"step": event["step"], "steps": steps, "wall": event["wall"], "at": time.time()}
        write_whole(self.folder / PROGRESS, json.dumps(progress) + "\n")

    def end(self, run: Run) -> None:
        """Keep the run; what was saved on its way is not needed any more."""
        run.save(self.folder)
        for name in (BEGUN, PROGRESS):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)

    def finished(self) -> Run | None:
        """The run, if it was made before by the same plan."""
        return self.finished_at(self.folder / FILE)

    def finished_at(self, path: Path) -> Run | None:
        """The run in this file, if there is one; PlanError if it is of another plan."""
        if not path.exists():
            return None
        run = Run.load(path)
        told = {"plan": run.plan, "version": run.version, "method": run.method, "source": run.source}
        self._check_same(told, "a run", path)
        return run

    def begun(self) -> bool:
        """Whether there is a checkpoint of this plan to go on from."""
        if not any((self.folder / CHECKPOINTS).glob("rank-*")):
            return False
        try:
            told = json.loads((self.folder / BEGUN).read_text())
        except (OSError, ValueError) as error:
            raise PlanError(
                f"{self.folder} holds checkpoints, but its {BEGUN} cannot be read ({error}), so it is not known of "
                "which run; choose another folder, or remove that one"
            ) from None
        self._check_same(told, "an unfinished run", self.folder)
        return True

    def _identity(self) -> dict[str, Any]:
        """What a run must share with this job to be its own."""
        method = thinwire.notation_of(thinwire.strategy_of(self.plan.method))
        version, source = thinwire.__version__, digest(self.plan.workload)
        return {"plan": self.plan.as_dict(), "version": version, "method": method, "source": source}

    def _check_same(self, told: dict[str, Any], what: str, where: Path) -> None:
        here = self._identity()
        advice = "choose another folder, or remove that one"
        there = _as_planned_now(told.get("plan") or {})
        if there != here["plan"]:
            differ = [name for name in {**there, **here["plan"]} if there.get(name) != here["plan"].get(name)]
            settings = ", ".join(f"{name} {there.get(name)!r}, not {here['plan'].get(name)!r}" for name in differ)
            raise PlanError(f"{where} holds {what} of another plan ({settings}); {advice}")
        names = {"version": "version of thinwire", "method": "method of that name", "source": self.plan.workload}
        for name, words in names.items():
            then, now = told.get(name) or "none", here[name] or "none"
            if then != now:
                raise PlanError(f"{where} holds {what} of another {words} ({then[:60]}, now {now[:60]}); {advice}")


def _as_planned_now(plan: dict[str, Any]) -> dict[str, Any]:
    """A stored plan, with the defaults of settings that did not exist when it was stored."""
    try:
        return plan_of(plan).as_dict()
    except PlanError:  # it has a setting that does not exist any more
        return plan


class Failed(RuntimeError):
    """Some runs did not come to their end; the message tells of each."""


# Called with a job and what its run tells: begins, resumed, step, loss, metrics, said, done, failed.
Watch = Callable[[Job, dict[str, Any]], None]


def run_all(jobs: list[Job], watch: Watch) -> list[Run]:
    """Make the runs that are not there yet; returns all of them, in the order of the jobs."""
    runs, failures = attempt_all(jobs, watch)
    if failures:
        raise Failed("\n".join(failures.values()))
    return [runs[job] for job in jobs]


def attempt_all(jobs: Sequence[Job], watch: Watch) -> tuple[dict[Job, Run], dict[Job, str]]:
    """Make the runs that are not there yet; returns those that came to their end, and what is told of the others."""
    runs: dict[Job, Run] = {}
    for job in jobs:
        there = job.finished()
        if there is not None:
            runs[job] = there
            watch(job, {"kept": True})
    open_jobs = [job for job in jobs if job not in runs]
    for job in open_jobs:
        job.begun()  # one of another plan is found before anything is run
    failures: dict[Job, str] = {}
    # Ranks that are there already take the next plan as well, if it asks for as many of them over the same link.
    for _, alike in groupby(open_jobs, key=lambda job: _ranks_of(job.plan)):
        waiting = list(alike)
        while waiting:
            waiting = _run_some(waiting, runs, failures, watch)
    return runs, failures


def _run_some(jobs: list[Job], runs: dict[Job, Run], failures: dict[Job, str], watch: Watch) -> list[Job]:
    """Run jobs until one breaks its ranks; returns those that have not had their turn."""
    current: int | None = None
    steps, shown = 0, 0.0

    def hear(event: dict[str, Any]) -> None:
        nonlocal current, steps, shown
        current = event.get("begins", current)
        if current is None:  # what is said before the first run begins is told if it never does
            return
        job = jobs[current]
        if "begins" in event:
            job.begin()
        job.log(event)
        steps = event.get("steps", steps)
        if "loss" in event and time.monotonic() - shown > PROGRESS_EVERY:
            shown = time.monotonic()
            job.show_progress(event, steps)
        if "failed" in event:
            reason = f"{DIVERGED if event.get('diverged') else ''}{event['failed']}"
            failures[job] = f"{job.name}: {reason}"
        if "done" in event:
            runs[job] = Run(**event["done"])
            job.end(runs[job])
        watch(job, event)

    plans = [job.plan for job in jobs]
    try:
        (processes if plans[0].transport == "processes" else simulation).run(plans, hear, [job.place for job in jobs])
    except processes.RanksError as error:
        if current is None:
            raise
        job = jobs[current]
        if job in runs:  # it was finished before; if the next ones cannot begin, they will raise
            return jobs[current + 1 :]
        job.log({"failed": str(error)})
        watch(job, {"failed": str(error)})
        failures[job] = f"{job.name}: {error} ({job.folder / LOG} has all that was said)"
        return jobs[current + 1 :]
    return []


def _is_evaluation(event: dict[str, Any]) -> bool:
    return "step" in event and "loss" not in event


def _shown(event: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in event.items())


def _ranks_of(plan: Plan) -> tuple[Any, ...]:
    return plan.transport, plan.size, plan.link, plan.modeled, plan.threads
