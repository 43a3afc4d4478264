"""Does a queue's runs one after the other, in low priority, each in a process of its own."""

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

from thinwire.lab import making
from thinwire.lab.comparison import Failed
from thinwire.lab.queue.entries import FAILED, Item, Queue
from thinwire.lab.runs import FILE, Run

NICE = 19  # added to a run's niceness, unless it needs a quiet machine
LOCK = "lock"
GRACE = 15.0  # seconds for a run to end in when asked to
PR_SET_PDEATHSIG = 1
Tell = Callable[[str], None]


def run(queue: Queue, tell: Tell, quiet_machine: bool = False, retry: bool = False) -> None:
    """Make all runs that are not finished; raises `Failed` at the end if some could not be made.

    Runs that need a quiet machine are made only if asked for; those that failed before are tried again only if `retry`.
    """
    with _locked(queue) as lock, _pausing(child := Child()):
        if retry:
            for tried in queue.items():
                (tried.job.folder / FAILED).unlink(missing_ok=True)
        passed: set[Path] = set()
        while (item := _next(queue, passed, quiet_machine)) is not None:
            passed.add(item.file)
            tell(f"{item.name} ...")
            tell(f"{item.name}: {_make(item, child, lock)}")
    _sum_up(queue, tell, quiet_machine)


def _next(queue: Queue, passed: set[Path], quiet_machine: bool) -> Item | None:
    """The first run to be made now; what is next may depend on what the last one came to."""
    for item in queue.items():
        waits = item.needs_quiet and not quiet_machine
        if item.file not in passed and not waits and item.failure() is None and item.finished() is None:
            return item
    return None


def _make(item: Item, child: "Child", lock: IO[str]) -> str:
    """Make a run, or go on with one; returns what came of it, in words."""
    job, folder = item.job, item.job.folder
    try:
        making.check([job])
        if job.finished() is None:
            job.begun()
            code = child.run(item, lock)
            if code or not (folder / FILE).exists():
                raise ValueError(_last_words(folder, code))
        made = Run.load(folder / FILE)
        made.tags = list(item.entry.tags)
        made.took = made.took | {"wall": round(made.took["wall"] - child.paused, 3)}
        made.write(item.file)
    except ValueError as error:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILED).write_text(f"{error}\n")
        return f"failed: {error}"
    shutil.rmtree(folder, ignore_errors=True)
    return "done"


def _last_words(folder: Path, code: int) -> str:
    """What a run that failed printed last, or how it was ended."""
    printed = (folder / "printed.txt").read_text(errors="replace").strip() if (folder / "printed.txt").exists() else ""
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    last = printed.splitlines()[-1] if printed else f"it ended with exit code {code}"
    return last.removeprefix("thinwire: ")


class Child:
    """The run that is being made: a process of its own, which can be paused."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._item: Item | None = None
        self._again = False  # it was ended to pause it, and goes on from its checkpoint
        self._stopped_at: float | None = None
        self.paused = 0.0  # seconds that it stood still in memory

    def run(self, item: Item, lock: IO[str]) -> int:
        """Train by the job's plan; returns the exit code."""
        folder = item.job.folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.toml").write_text(item.job.plan.to_toml())
        minutes = f"{item.job.minutes:g}"
        command = [sys.executable, "-m", "thinwire", "train", "--file", str(folder / "run.toml"), "--out", str(folder)]
        self._item, self._again, self.paused = item, True, 0.0
        code = 0
        while self._again:
            self._again = False
            with (folder / "printed.txt").open("wb") as printed:
                # Whoever holds the lock's file holds the lock: a run that outlives its queue keeps others away.
                self._process = subprocess.Popen(
                    [*command, "--quiet", "--checkpoint-minutes", minutes],
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[lock.fileno()],
                    preexec_fn=_with_parent(0 if item.needs_quiet else NICE),
                )
            try:
                code = self._process.wait()
            except BaseException:
                self.end()
                raise
        return code

    def end(self) -> None:
        """End it, if it has not ended; what it saved stays."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def pause(self) -> None:
        """Let it stand still. Real ranks look at the clock on the wall, so they are ended, and go on later."""
        if self._process is None or self._process.poll() is not None or self._item is None:
            return
        if self._item.job.plan.transport == "processes":
            self._again = True
            self.end()
        else:
            self._stopped_at = time.monotonic()
            os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        if self._stopped_at is not None:
            self.paused, self._stopped_at = self.paused + time.monotonic() - self._stopped_at, None
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGCONT)


@contextmanager
def _pausing(child: Child) -> Iterator[None]:
    """SIGTSTP pauses the queue and its run, SIGCONT lets both go on; SIGTERM ends them as Ctrl-C does."""

    def pause(number: int, frame: FrameType | None) -> None:
        child.pause()
        os.kill(os.getpid(), signal.SIGSTOP)  # until SIGCONT

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handlers = {
        signal.SIGTSTP: pause,
        signal.SIGCONT: lambda number, frame: child.go_on(),
        signal.SIGTERM: end,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _locked(queue: Queue) -> Iterator[IO[str]]:
    """One at a time: ValueError if another queue, or a run that outlived it, is at work in the same folder."""
    queue.work.mkdir(parents=True, exist_ok=True)
    with (queue.work / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise ValueError(
                f"{queue.out} is being worked on by another queue (process {lock.read().strip()})"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield lock


def is_running(queue: Queue) -> bool:
    """Whether somebody is at work on it."""
    try:
        with (queue.work / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _with_parent(nice: int) -> Callable[[], None]:
    """Before a run begins: give way to all others, and end if the queue is killed."""
    parent = os.getpid()

    def prepare() -> None:
        os.nice(nice)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it was killed before
                os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _sum_up(queue: Queue, tell: Tell, quiet_machine: bool) -> None:
    items = queue.items()
    done = sum(item.finished() is not None for item in items)
    waiting = [item for item in items if item.needs_quiet and not quiet_machine and item.finished() is None]
    told = [f"{done} of {len(items) + queue.unknown()} runs are finished"]
    if waiting:
        told.append(f"{len(waiting)} wait for a quiet machine (--quiet-machine)")
    tell("; ".join(told))
    failures = [f"{item.name}: {why}" for item in items if (why := item.failure()) is not None]
    if failures:
        raise Failed("\n".join(["these runs failed (--retry tries them again):", *failures]))
