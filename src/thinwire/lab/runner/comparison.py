"""Several runs, one after the other, each in its own folder; finished runs are kept and not repeated."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import thinwire
from thinwire.lab.recording.runs import FILE, Run, write_atomically
from thinwire.lab.runner import processes, simulation
from thinwire.lab.runner.plan import Plan, PlanError, plan_of
from thinwire.lab.runner.run_folder import CHECKPOINTS, MINUTES, RunFolder
from thinwire.lab.tasks.workloads.user_task import digest

PLAN, LOG, STARTED, PROGRESS = "run.toml", "log.txt", "begun.json", "progress.json"
PROGRESS_EVERY = 5.0  # seconds
DIVERGED = "diverged: "  # prefix of failures that another learning rate may avoid


@dataclass(frozen=True)
class Job:
    """A plan, and the folder that its run is saved in."""

    plan: Plan
    folder: Path
    minutes: float = MINUTES  # between two checkpoints

    @property
    def name(self) -> str:
        return f"{self.plan.label}, seed {self.plan.seed}"

    @property
    def run_folder(self) -> RunFolder:
        return RunFolder(self.folder, self.minutes)

    def start(self) -> None:
        """Create the folder with what is needed to repeat the run, or keep it if the run resumes from a checkpoint."""
        resumes = self.can_resume()
        if not resumes:
            shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / PLAN).write_text(self.plan.to_toml())
        write_atomically(self.folder / STARTED, json.dumps(self._identity(), indent=1) + "\n")
        if not resumes:
            (self.folder / LOG).write_text(f"# {self.plan.command()}\n")

    def log(self, event: dict[str, Any]) -> None:
        """Append output, failures, evaluations and resumptions to the log."""
        line = event.get("output") or event.get("failed") or (_shown(event) if _is_evaluation(event) else None)
        if "resumed" in event:
            line = f"# resumed from the checkpoint after step {event['resumed']}"
        if line:
            with (self.folder / LOG).open("a") as file:
                file.write(line.rstrip("\n") + "\n")

    def show_progress(self, event: dict[str, Any], steps: int) -> None:
        """Write the progress of the run to its folder, where other processes can read it."""
        progress = {"step": event["step"], "steps": steps, "wall": event["wall"], "at": time.time()}
        write_atomically(self.folder / PROGRESS, json.dumps(progress) + "\n")

    def end(self, run: Run) -> None:
        """Save the run and remove its checkpoints."""
        run.save(self.folder)
        for name in (STARTED, PROGRESS):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)

    def finished(self) -> Run | None:
        """The saved run of this plan, if there is one."""
        return self.finished_at(self.folder / FILE)

    def finished_at(self, path: Path) -> Run | None:
        """The run in this file, if there is one; PlanError if it belongs to another plan."""
        if not path.exists():
            return None
        run = Run.load(path)
        stored = {"plan": run.plan, "version": run.version, "method": run.method, "source": run.source}
        self._check_same(stored, "a run", path)
        return run

    def can_resume(self) -> bool:
        """Whether there is a checkpoint of this plan; PlanError if it belongs to another plan."""
        if not any((self.folder / CHECKPOINTS).glob("rank-*")):
            return False
        try:
            stored = json.loads((self.folder / STARTED).read_text())
        except (OSError, ValueError) as error:
            raise PlanError(
                f"{self.folder} contains checkpoints, but its {STARTED} cannot be read ({error}), so it is unknown "
                "which run they belong to; choose another folder, or remove that one"
            ) from None
        self._check_same(stored, "an unfinished run", self.folder)
        return True

    def _identity(self) -> dict[str, Any]:
        """What a saved run must have in common with this job."""
        method = thinwire.notation_of(thinwire.strategy_of(self.plan.method))
        version, source = thinwire.__version__, digest(self.plan.workload)
        return {"plan": self.plan.as_dict(), "version": version, "method": method, "source": source}

    def _check_same(self, stored: dict[str, Any], what: str, where: Path) -> None:
        here = self._identity()
        advice = "choose another folder, or remove that one"
        there = _as_planned_now(stored.get("plan") or {})
        if there != here["plan"]:
            differ = [name for name in {**there, **here["plan"]} if there.get(name) != here["plan"].get(name)]
            settings = ", ".join(f"{name} {there.get(name)!r}, not {here['plan'].get(name)!r}" for name in differ)
            raise PlanError(f"{where} contains {what} of another plan ({settings}); {advice}")
        names = {"version": "version of thinwire", "method": "method of that name", "source": self.plan.workload}
        for name, words in names.items():
            then, now = stored.get(name) or "none", here[name] or "none"
            if then != now:
                raise PlanError(f"{where} contains {what} of another {words} ({then[:60]}, now {now[:60]}); {advice}")


def _as_planned_now(plan: dict[str, Any]) -> dict[str, Any]:
    """A stored plan, with the defaults of settings that did not exist when it was stored."""
    try:
        return plan_of(plan).as_dict()
    except PlanError:  # it has a setting that no longer exists
        return plan


class Failed(RuntimeError):
    """Some runs failed; the message gives the reason for each."""


# Called with a job and an event of its run: started, resumed, step, loss, metrics, output, done, failed.
Watch = Callable[[Job, dict[str, Any]], None]


def run_all(jobs: list[Job], watch: Watch) -> list[Run]:
    """Execute the runs that are not finished yet; returns all runs, in the order of the jobs."""
    runs, failures = attempt_all(jobs, watch)
    if failures:
        raise Failed("\n".join(failures.values()))
    return [runs[job] for job in jobs]


def attempt_all(jobs: Sequence[Job], watch: Watch) -> tuple[dict[Job, Run], dict[Job, str]]:
    """Execute the runs that are not finished yet; returns the finished runs and the reasons of the failed ones."""
    runs: dict[Job, Run] = {}
    for job in jobs:
        finished = job.finished()
        if finished is not None:
            runs[job] = finished
            watch(job, {"kept": True})
    open_jobs = [job for job in jobs if job not in runs]
    for job in open_jobs:
        job.can_resume()  # raises for a checkpoint of another plan, before anything is run
    failures: dict[Job, str] = {}
    # The same processes execute the next plan as well, if it needs as many ranks and the same link.
    for _, group in groupby(open_jobs, key=lambda job: _ranks_of(job.plan)):
        waiting = list(group)
        while waiting:
            waiting = _run_some(waiting, runs, failures, watch)
    return runs, failures


def _run_some(jobs: list[Job], runs: dict[Job, Run], failures: dict[Job, str], watch: Watch) -> list[Job]:
    """Run jobs until the ranks of one fail; returns the jobs that were not started."""
    current: int | None = None
    steps, shown = 0, 0.0

    def on_event(event: dict[str, Any]) -> None:
        nonlocal current, steps, shown
        current = event.get("started", current)
        if current is None:  # output before the first run starts is in the error if none does
            return
        job = jobs[current]
        if "started" in event:
            job.start()
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
        (processes if plans[0].transport == "processes" else simulation).run(
            plans, on_event, [job.run_folder for job in jobs]
        )
    except processes.RanksError as error:
        if current is None:
            raise
        job = jobs[current]
        if job in runs:  # it had finished; if the next jobs cannot start, they will raise
            return jobs[current + 1 :]
        job.log({"failed": str(error)})
        watch(job, {"failed": str(error)})
        failures[job] = f"{job.name}: {error} (full output in {job.folder / LOG})"
        return jobs[current + 1 :]
    return []


def _is_evaluation(event: dict[str, Any]) -> bool:
    return "step" in event and "loss" not in event


def _shown(event: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in event.items())


def _ranks_of(plan: Plan) -> tuple[Any, ...]:
    return plan.transport, plan.size, plan.link, plan.modeled, plan.threads
