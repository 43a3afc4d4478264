"""A queue of real runs, each in its own process: finished, resumed, failed, paused, killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tests.lab.queue.sample_queues import written
from tests.lab.runner.killing import descendants
from tests.lab.runner.test_resuming import without_times
from tests.lab.sample_tasks import called
from thinwire.lab import queue, report
from thinwire.lab.recording.runs import MOST_BYTES, Run
from thinwire.lab.runner.comparison import PROGRESS, Failed
from thinwire.lab.runner.run_folder import CHECKPOINTS

SLOW = f"""
[[plans]]
name = "slow"
workload = "{called("Slow")}"
methods = ["topk"]
steps = 120
"""
TIMEOUT = 120.0  # seconds


def wait_for(condition: Callable[[], object]) -> object:
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("the condition did not become true in time")


def started(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "thinwire", "queue", str(path)], start_new_session=True)


def step_of(path: Path) -> int:
    (folder,) = (item.job.folder for item in queue.read(path).items())
    line = queue.status(queue.read(path), "").lines[0]
    return line.progress.step if (folder / PROGRESS).exists() and line.progress else 0


def text_of(path: Path) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(queue.status(queue.read(path), "queue.toml").shown())
    return capture.get()


def test_a_queue_continues_after_a_failed_run_and_keeps_finished_runs(tmp_path):
    path = written(
        tmp_path,
        f"""
        [[plans]]
        methods = ["dense"]
        tags = ["good"]
        [[plans]]
        name = "bad"
        workload = "{called("Diverges")}"
        methods = ["dense"]
        priority = 1
        [[plans]]
        name = "tuned"
        methods = ["topk"]
        tune = [1, 3]
        seeds = 2
        [[plans]]
        name = "linked"
        methods = ["dense"]
        links = ["10mbit"]
        transport = "processes"
        """,
    )
    before = text_of(path)
    assert (
        "0 of 6 runs done, 1 waiting for --quiet-machine, 5 left, no run measured yet; the queue is not running"
        in before
    )
    log: list[str] = []
    with pytest.raises(Failed, match=r"--retry tries them again\):\nbad: dense, seed 1: .*(NaN|not finite)"):
        queue.run(queue.read(path), log.append)
    assert log[0] == "bad: dense, seed 1 ..."
    assert log[-1] == "4 of 6 runs are finished; 1 wait for a quiet machine (--quiet-machine)"

    out = tmp_path / "out"
    made = sorted(file.relative_to(out) for file in out.rglob("*.run.json"))
    chosen = {run.plan["lr_scale"] for run in report.read(out) if run.seed == 2}
    assert len(made) == 4
    assert len(chosen) == 1, "the other seed has the tuned learning rate"
    assert all((out / file).stat().st_size <= MOST_BYTES for file in made)
    assert Run.load(out / "Tiny" / "dense" / "seed-1.run.json").tags == ["good"]
    assert report.write(out).exists()
    after = text_of(path)
    assert "4 of 6 runs done, 1 failed, 1 waiting for --quiet-machine, 0 left" in after
    assert "failed bad: dense, seed 1:" in after

    contents = {file: (out / file).read_bytes() for file in made}
    log.clear()
    with pytest.raises(Failed):
        queue.run(queue.read(path), log.append)
    assert len(log) == 1, "no run is repeated"
    assert {file: (out / file).read_bytes() for file in made} == contents
    with pytest.raises(Failed):
        queue.run(queue.read(path), log.append, retry=True)
    assert log[1] == "bad: dense, seed 1 ..."


def test_killing_a_queue_kills_its_run_which_resumes_to_the_same_bits(tmp_path):
    (tmp_path / "whole").mkdir()
    uninterrupted, path = written(tmp_path / "whole", SLOW), written(tmp_path, SLOW)
    with started(path) as first:
        (item,) = queue.read(path).items()
        wait_for(lambda: list((item.job.folder / CHECKPOINTS).glob("rank-1-*.pt")) and step_of(path) > 5)
        shown = text_of(path)
        with pytest.raises(ValueError, match=rf"is in use by another queue \(process {first.pid}\)"):
            queue.run(queue.read(path), lambda text: None)
        first.kill()
    assert "1 running" in shown
    assert "min to go" in shown
    wait_for(lambda: not queue.status(queue.read(path), "").is_running)
    assert "seed 1 started" in text_of(path)
    with started(path) as again, started(uninterrupted) as other:
        assert (again.wait(), other.wait()) == (0, 0)
    run, unbroken = (
        Run.load(folder / "out" / "slow" / "topk" / "seed-1.run.json") for folder in (tmp_path, uninterrupted.parent)
    )
    assert len(run.resumed) == 1
    assert without_times(run) == without_times(unbroken)
    assert not item.job.folder.exists(), "checkpoints are removed after the run"


def test_a_killed_run_is_resumed_by_its_queue(tmp_path):
    path = written(tmp_path, SLOW)
    with started(path) as process:
        (item,) = queue.read(path).items()
        wait_for(lambda: list((item.job.folder / CHECKPOINTS).glob("rank-1-*.pt")) and step_of(path) > 5)
        for child in descendants(process.pid):
            os.kill(child, signal.SIGKILL)
        assert process.wait() == 0
    assert len(Run.load(tmp_path / "out" / "slow" / "topk" / "seed-1.run.json").resumed) == 1


def stopped(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("transport", ["simulated", "processes"])
def test_sigtstp_pauses_a_queue_and_sigcont_continues_it(transport, tmp_path):
    path, since = written(tmp_path, f'{SLOW}\ntransport = "{transport}"'), time.monotonic()
    with started(path) as process:
        (item,) = queue.read(path).items()
        checkpoints = item.job.folder / CHECKPOINTS
        wait_for(lambda: list(checkpoints.glob("rank-1-*.pt")) and step_of(path) > 5)
        os.kill(process.pid, signal.SIGTSTP)
        wait_for(lambda: stopped(process))
        time.sleep(0.3)  # for writes in progress
        before = sorted(checkpoints.iterdir())
        time.sleep(1.0)
        assert sorted(checkpoints.iterdir()) == before, "the run is stopped"
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait() == 0
    run = Run.load(tmp_path / "out" / "slow" / "topk" / "seed-1.run.json")
    # Simulated ranks stay in memory. Real ones would time out, so they are ended and resumed.
    assert len(run.resumed) == (transport == "processes")
    assert run.took["wall"] < time.monotonic() - since - 1.3, "the pause is not counted"
