"""Executes the runs of a queue one after the other, at low priority, each in its own process."""

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from thinwire.lab.queue.queue_file import FAILED, Item, Queue
from thinwire.lab.recording.runs import FILE, Run
from thinwire.lab.report.number_format import metric_name, metric_text
from thinwire.lab.runner.comparison import Failed

NICE = 19  # added to a run's niceness, unless it needs a quiet machine
LOCK, LOCK_ATTEMPTS = "lock", 5
GRACE = 15.0  # seconds between SIGINT and SIGKILL
POLL_EVERY = 0.1  # seconds
ATTEMPTS = 3  # at a run that is killed from outside: each resumes from the last checkpoint
INTERRUPTED = 130  # the exit code after Ctrl-C
PRINTED = "printed.txt"  # in a run's folder: its output
PR_SET_PDEATHSIG = 1
Log = Callable[[str], None]


def run(queue: Queue, log: Log, quiet_machine: bool = False, retry: bool = False) -> None:
    """Execute all unfinished runs; raises `Failed` at the end if some failed.

    Runs that need a quiet machine are executed only with `quiet_machine`, runs that failed before only with `retry`.
    """
    with _locked(queue) as lock, _pausing(child := Child()):
        if retry:
            for failed in queue.items():
                (failed.job.folder / FAILED).unlink(missing_ok=True)
        attempted: set[Path] = set()
        while (item := _next(queue, attempted, quiet_machine)) is not None:
            attempted.add(item.file)
            log(f"{item.name} ...")
            log(f"{item.name}: {_execute(item, child, lock)}")
    _summarize(queue, log, quiet_machine)


def _next(queue: Queue, attempted: set[Path], quiet_machine: bool) -> Item | None:
    """The next run to execute; it may depend on the result of the last one."""
    for item in queue.items():
        waits = item.needs_quiet and not quiet_machine
        if item.file not in attempted and not waits and item.failure() is None and item.finished() is None:
            return item
    return None


def _execute(item: Item, child: "Child", lock: IO[str]) -> str:
    """Start or resume a run; returns a description of the result."""
    job, folder, code = item.job, item.job.folder, 0
    try:
        for _ in range(ATTEMPTS):
            if job.finished() is not None:
                break
            job.can_resume()  # raises PlanError for the checkpoint of another plan
            code = child.run(item, lock)
            if code >= 0 and code != INTERRUPTED:
                break
        else:
            return f"interrupted ({_last_line(folder, code)}); the same command resumes it"
        if code or not (folder / FILE).exists():
            raise ValueError(_last_line(folder, code))
        made = Run.load(folder / FILE)
        made.tags = list(item.entry.tags)
        made.took = made.took | {"wall": round(made.took["wall"] - child.paused, 3)}
        made.write(item.file)
    except ValueError as error:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILED).write_text(f"{error}\n")
        return f"failed: {error}"
    shutil.rmtree(folder, ignore_errors=True)
    metric = f"{metric_name(made.metric)} {metric_text(made.metric, made.metrics[made.metric])}"
    return f"done, {metric}, {made.took['wall'] / 60:.1f} min"


def _last_line(folder: Path, code: int) -> str:
    """The last line that a failed run printed, or the signal or exit code that ended it."""
    printed = (folder / PRINTED).read_text(errors="replace").strip() if (folder / PRINTED).exists() else ""
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    last = printed.splitlines()[-1] if printed else f"it ended with exit code {code}"
    return last.removeprefix("thinwire: ")


class Child:
    """The process of the current run, which can be paused."""

    def __init__(self) -> None:
        self.pause_requested = False
        self.paused = 0.0  # seconds for which the process was stopped

    def run(self, item: Item, lock: IO[str]) -> int:
        """Execute the job; returns the exit code."""
        self.paused = 0.0
        code = None
        while code is None:  # it was ended for a pause, and resumes from its checkpoint
            process = _started(item, lock)
            try:
                code = self._waited_for(process, item)
            except BaseException:
                _end(process)
                raise
        return code

    def _waited_for(self, process: subprocess.Popen[bytes], item: Item) -> int | None:
        """The exit code of a run that ended by itself; None if it was ended for a pause."""
        while process.poll() is None:
            if not self.pause_requested:
                time.sleep(POLL_EVERY)
                continue
            self.pause_requested = False
            if (
                item.job.plan.transport == "processes"
            ):  # real ranks measure wall-clock time, which stopping them would change
                _end(process)
                os.kill(os.getpid(), signal.SIGSTOP)  # until SIGCONT
                return None
            since = time.monotonic()
            os.killpg(process.pid, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.killpg(process.pid, signal.SIGCONT)
            self.paused += time.monotonic() - since
        return process.returncode


def _started(item: Item, lock: IO[str]) -> subprocess.Popen[bytes]:
    folder = item.job.folder
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / "run.toml"
    plan.write_text(item.job.plan.to_toml())
    command = [sys.executable, "-m", "thinwire", "train", "--file", str(plan), "--out", str(folder), "--quiet"]
    with (folder / PRINTED).open("wb") as printed:
        # The run inherits the lock's file: if it outlives its queue, it keeps the lock, and other queues wait.
        return subprocess.Popen(
            [*command, "--checkpoint-minutes", f"{item.job.minutes:g}"],
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock.fileno()],
            preexec_fn=_with_parent(0 if item.needs_quiet else NICE),
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a run, if it is still running; its checkpoints stay."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _pausing(child: Child) -> Iterator[None]:
    """SIGTSTP pauses the queue and its run until SIGCONT; SIGTERM ends them as Ctrl-C does."""

    def pause(number: int, frame: FrameType | None) -> None:
        child.pause_requested = True

    def resume(number: int, frame: FrameType | None) -> None:
        child.pause_requested = False  # SIGCONT came before the pause

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handlers = {signal.SIGTSTP: pause, signal.SIGCONT: resume, signal.SIGTERM: end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _locked(queue: Queue) -> Iterator[IO[str]]:
    """Lock the folder of the queue; ValueError if another queue, or a run that outlived it, holds the lock."""
    queue.work.mkdir(parents=True, exist_ok=True)
    with (queue.work / LOCK).open("a+") as lock:
        for attempt in range(LOCK_ATTEMPTS):  # `status` holds it for a moment
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if attempt == LOCK_ATTEMPTS - 1:
                    lock.seek(0)
                    raise ValueError(
                        f"{queue.out} is in use by another queue (process {lock.read().strip()})"
                    ) from None
                time.sleep(POLL_EVERY)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield lock


def is_running(queue: Queue) -> bool:
    """Whether a process executes the queue."""
    try:
        with (queue.work / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _with_parent(nice: int) -> Callable[[], None]:
    """A function for a new process: lowers its priority, and lets it be killed with the queue."""
    parent = os.getpid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before the fork

    def prepare() -> None:
        os.nice(nice)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background processes ignore it
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the queue was killed before prctl
                os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _summarize(queue: Queue, log: Log, quiet_machine: bool) -> None:
    items = queue.items()
    finished = sum(item.finished() is not None for item in items)
    waiting = [item for item in items if item.needs_quiet and not quiet_machine and item.finished() is None]
    parts = [f"{finished} of {len(items) + queue.unknown()} runs are finished"]
    if waiting:
        parts.append(f"{len(waiting)} wait for a quiet machine (--quiet-machine)")
    log("; ".join(parts))
    failures = [f"{item.name}: {reason}" for item in items if (reason := item.failure()) is not None]
    if failures:
        raise Failed("\n".join(["these runs failed (--retry tries them again):", *failures]))
