"""A killed run resumes from its checkpoint and ends with the same bits as an uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.lab.runner.killing import descendants
from tests.lab.sample_tasks import called
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner import checkpoint_schedule, simulation
from thinwire.lab.runner.comparison import LOG, STARTED, Job, run_all
from thinwire.lab.runner.plan import Plan, PlanError
from thinwire.lab.runner.run_folder import CHECKPOINTS

SOON = 1e-7  # minutes: a checkpoint after every comparison of the clocks
# One of each kind: with a residual, low-rank with state, local steps, in flight while saving, learned.
METHODS = ["topk", "powersgd", "LocalSGD(ErrorFeedback(TopK(0.1)), every=5)", "osgp", "lgc"]
FACTORS = "ABTraining(after=4, every=8, full=2, rebound=2)"


class Killed(BaseException):
    """Raised in place of a kill."""


def job(folder: Path, method: str = "topk", name: str = "Tiny", minutes: float = SOON, **settings) -> Job:
    settings = {"ranks": 2, "transport": "simulated", "steps": 24, "evaluations": 4} | settings
    return Job(Plan(name if "-" in name else called(name), method, **settings), folder, minutes)


def ignore(job, event):
    pass


def without_times(run: Run) -> dict:
    """All fields of a run except times and interruptions."""
    kept = asdict(run)
    for name in ("seconds", "took", "resumed", "machine", "commit"):
        del kept[name]
    for points in (kept["history"], kept["evaluations"]):
        for point in points:
            del point["seconds"]
    return kept


def interrupted(one: Job, after: int) -> None:
    """Run a job until its first checkpoint from step `after` on, and stop it there as a kill would."""

    def stop(which, event):
        steps = [int(path.stem.rpartition("-")[2]) for path in (one.folder / CHECKPOINTS).glob("rank-1-*.pt")]
        if max(steps, default=0) >= after:
            raise Killed

    with pytest.raises(Killed):
        run_all([one], stop)


@pytest.fixture
def report_every_step(monkeypatch):
    """Report every step, so that a run can be stopped at any step."""
    monkeypatch.setattr("thinwire.lab.runner.train_loop.REPORT_EVERY", 0.0)


@pytest.mark.usefixtures("report_every_step")
@pytest.mark.parametrize(("method", "name"), [*((method, "Tiny") for method in METHODS), (FACTORS, "digits-cnn")])
def test_a_run_interrupted_twice_equals_an_uninterrupted_one(method, name, tmp_path):
    (uninterrupted,) = run_all([job(tmp_path / "whole", method, name, minutes=0)], ignore)
    one = job(tmp_path / "stopped", method, name)
    interrupted(one, after=3)
    interrupted(one, after=11)
    (run,) = run_all([one], ignore)
    assert without_times(run) == without_times(uninterrupted)
    first, second = (interruption["step"] for interruption in run.resumed)
    assert 3 <= first < second < 24
    assert uninterrupted.resumed == []
    log = (one.folder / LOG).read_text()
    assert f"# resumed from the checkpoint after step {first}" in log
    assert len([line for line in log.splitlines() if line.startswith("step 24, test_accuracy")]) == 1


@pytest.mark.usefixtures("report_every_step")
def test_a_run_with_a_random_model_resumes_to_the_same_bits(tmp_path):
    (uninterrupted,) = run_all([job(tmp_path / "whole", name="RandomState", minutes=0)], ignore)
    one = job(tmp_path / "stopped", name="RandomState")
    interrupted(one, after=7)
    assert without_times(run_all([one], ignore)[0]) == without_times(uninterrupted)


@pytest.mark.usefixtures("report_every_step")
def test_seconds_and_captured_gradients_of_a_resumed_run_are_those_of_one_run(tmp_path):
    (uninterrupted,) = run_all([job(tmp_path / "whole", capture=6, minutes=0)], ignore)
    one = job(tmp_path / "stopped", capture=6)
    interrupted(one, after=11)
    before = json.loads((one.folder / "gradients" / "index.json").read_text())["steps"]
    (run,) = run_all([one], ignore)
    assert 0 < len(before) < 6
    for path in sorted((tmp_path / "whole" / "gradients").iterdir()):
        assert (one.folder / "gradients" / path.name).read_bytes() == path.read_bytes()
    seconds = [point["seconds"] for point in run.history]
    assert seconds == sorted(seconds)
    assert run.seconds["total"] == pytest.approx(seconds[-1], abs=1e-5)
    assert run.took["wall"] > 0
    assert run.took["cpu"] > 0
    assert without_times(run) == without_times(uninterrupted)


@pytest.mark.usefixtures("report_every_step")
def test_only_the_run_and_its_log_are_left_after_the_end(tmp_path):
    one = job(tmp_path)
    interrupted(one, after=3)
    assert (tmp_path / STARTED).exists()
    kept = list((tmp_path / CHECKPOINTS).iterdir())
    assert len(kept) == 2, "one checkpoint, with one file per rank"
    run_all([one], ignore)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "run.json", "run.toml"]


@pytest.mark.usefixtures("report_every_step")
def test_a_checkpoint_of_another_plan_is_an_error_and_unchanged(tmp_path):
    one = job(tmp_path)
    interrupted(one, after=3)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = replace(one, plan=replace(one.plan, seed=2))
    with pytest.raises(
        PlanError, match=r"contains an unfinished run of another plan \(seed 1, not 2\); choose another"
    ):
        run_all([other], ignore)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / STARTED).unlink()
    with pytest.raises(PlanError, match=r"contains checkpoints, but its begun\.json cannot be read"):
        run_all([one], ignore)


def test_zero_minutes_between_checkpoints_means_no_checkpoint(tmp_path):
    one = job(tmp_path, minutes=0)
    seen = []
    run_all([one], lambda which, event: seen.append((one.folder / CHECKPOINTS).exists()))
    assert not any(seen)


@pytest.mark.usefixtures("report_every_step")
def test_a_checkpoint_that_not_all_ranks_have_written_is_ignored(tmp_path):
    (uninterrupted,) = run_all([job(tmp_path / "whole", minutes=0)], ignore)
    one = job(tmp_path / "stopped")
    interrupted(one, after=7)
    (newest,) = (one.folder / CHECKPOINTS).glob("rank-0-*.pt")
    later = newest.with_name("rank-0-step-9.pt")
    later.write_bytes(newest.read_bytes())
    (one.folder / CHECKPOINTS / "rank-1-step-9.part").write_bytes(b"half of it")
    assert without_times(run_all([one], ignore)[0]) == without_times(uninterrupted)


@pytest.mark.usefixtures("report_every_step")
@pytest.mark.parametrize("written_by", [{0}, {1}, {0, 1}])
def test_a_run_killed_during_its_first_checkpoint_restarts_or_resumes(written_by, tmp_path):
    (uninterrupted,) = run_all([job(tmp_path / "whole", minutes=0)], ignore)
    one = job(tmp_path / "stopped")
    interrupted(one, after=7)
    for rank in (0, 1):  # as if killed before any rank knew that all had written
        (path,) = (one.folder / CHECKPOINTS).glob(f"rank-{rank}-*.pt")
        path.rename(path.with_suffix(".ready" if rank in written_by else ".part"))
    (run,) = run_all([one], ignore)
    assert without_times(run) == without_times(uninterrupted)
    assert len(run.resumed) == (written_by == {0, 1})


class OneClock:
    """A context in which this rank's values are the maximum."""

    def all_max(self, mine):
        return mine


def test_checkpoints_are_at_most_one_interval_apart(monkeypatch):
    now, saved, comparisons = 0.0, [0.0], 0
    monkeypatch.setattr(checkpoint_schedule.time, "monotonic", lambda: now)
    schedule = checkpoint_schedule.CheckpointSchedule(300.0, OneClock())
    for step in range(1, 20_000):
        now += 2.0 if step < 5 else 0.3 if step < 9000 else 0.45  # slow at first, and slower again later
        if schedule.compares(step):
            comparisons += 1
            if schedule.is_due(step):
                saved.append(now)
    gaps = [after - before for before, after in zip(saved, [*saved[1:], now], strict=True)]
    assert max(gaps) <= 300.0
    assert min(gaps[:-1]) > 200.0
    assert comparisons < 12 * len(saved)


def test_a_long_evaluation_delays_no_checkpoint_beyond_the_interval(monkeypatch):
    now, saved = 0.0, [0.0]
    monkeypatch.setattr(checkpoint_schedule.time, "monotonic", lambda: now)
    schedule = checkpoint_schedule.CheckpointSchedule(300.0, OneClock())
    for step in range(1, 20_000):
        now += 0.25 if step % 262 else 60.0
        if schedule.compares(step) and schedule.is_due(step):
            saved.append(now)
    gaps = [after - before for before, after in zip(saved, [*saved[1:], now], strict=True)]
    assert max(gaps) <= 300.0
    assert min(gaps[2:-1]) > 150.0


@pytest.mark.parametrize("transport", ["simulated", "processes"])
def test_a_killed_run_resumes_with_the_same_command(transport, tmp_path):
    settings = ["--workload", called("Slow"), "--method", "topk", "--ranks", "2", "--steps", "60", "--quiet"]
    command = [sys.executable, "-m", "thinwire", "train", *settings, "--transport", transport]

    def start(out: Path, minutes: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, "--checkpoint-minutes", minutes, "--out", str(out)], start_new_session=True)

    with start(tmp_path / "killed", "0.01") as first:
        until = time.monotonic() + 120
        while not list((tmp_path / "killed" / CHECKPOINTS).glob("rank-1-*.pt")) and time.monotonic() < until:
            assert first.poll() is None, "it ended before it could be killed"
            time.sleep(0.02)
        for process in (*descendants(first.pid), first.pid):
            os.kill(process, signal.SIGKILL)
    with start(tmp_path / "killed", "5") as again, start(tmp_path / "whole", "0") as uninterrupted:
        assert (again.wait(), uninterrupted.wait()) == (0, 0)
    run, unbroken = (Run.load(tmp_path / name / "run.json") for name in ("killed", "whole"))
    assert len(run.resumed) == 1
    assert {**without_times(run), "command": ""} == {**without_times(unbroken), "command": ""}


def test_a_run_without_a_folder_saves_no_checkpoint(tmp_path):
    events = []
    simulation.run([job(tmp_path).plan], events.append)
    assert not any("resumed" in event for event in events)
    assert not list(tmp_path.iterdir())
