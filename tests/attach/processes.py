"""Runs functions on real gloo ranks.

Starting a process costs seconds, most of them spent on importing torch. So they are forked off one that has imported
everything and done nothing else, and a pool of them stays alive between tests. Every call gets a process group of its
own. A call that hangs or loses a process costs the pool, which starts again with the next call.
"""

import atexit
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection
from datetime import timedelta
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

GRACE = 20.0  # seconds that the other ranks have to end once one of them has failed
DUMP = 10.0  # seconds at most to write down where a hanging process is
END = "in _serve"  # a process's first own function, which its written stack ends with


class RankError(AssertionError):
    """A rank raised; the message holds its traceback."""


class HangError(AssertionError):
    """A rank did not end in time; the message says where every thread was."""


class Job(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    rank: int
    ranks: int
    store: str


class Gone(NamedTuple):
    """What a call gives for a rank that was expected to die."""

    exit_code: int | None


def run(
    function: Callable[..., Any],
    *args: Any,
    ranks: int = 2,
    timeout: float = 60,
    dies: int | Collection[int] = (),
    stalls: int | None = None,
) -> list[Any]:
    """What a module-level function returns on each of the ranks.

    Those in `dies` will not come back, and `stalls` neither: it is killed when all others have.
    """
    return _pool.run(function, args, ranks, timeout, {dies} if isinstance(dies, int) else set(dies), stalls)


def close() -> dict[int, int | None]:
    """End the pool's processes; returns the exit codes of those that did not end well."""
    return _pool.close()


class Process:
    def __init__(self, folder: Path, number: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([f"{__package__}.warm", __name__])
        self.connection, theirs = context.Pipe()
        self.log = folder / f"process{number}.log"
        self.log.touch()
        self.process = context.Process(target=_serve, args=(theirs, str(self.log)), daemon=True)
        self.process.start()
        theirs.close()

    def said(self, start: int = 0) -> str:
        return self.log.read_bytes()[start:].decode(errors="replace").strip()


class Pool:
    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.numbers = count()

    def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        ranks: int,
        timeout: float,
        dies: set[int],
        stalls: int | None,
    ) -> list[Any]:
        team = self._team(ranks)
        starts = [process.log.stat().st_size for process in team]
        store = str(self._path() / f"store{next(self.numbers)}")
        for rank, process in enumerate(team):
            process.connection.send_bytes(pickle.dumps(Job(function, args, rank, ranks, store)))
        answers, late = self._answers(team, timeout, dies, stalls)
        where = {rank: _dumped(team[rank], starts[rank]) for rank in late}
        if late:
            self.kill(team)
        else:  # those who are left train on with others
            self.kill([team[rank] for rank in {*dies, *(() if stalls is None else (stalls,))}])
        if late:
            told = "\n".join(f"--- rank {rank} was here:\n{text}" for rank, text in where.items())
            failed = _told(answers)
            raise HangError(f"ranks {late} did not end in {timeout:g} s\n{failed}{told}")
        if any(isinstance(answer, Failure) for answer in answers.values()):
            self.kill([team[rank] for rank, answer in answers.items() if isinstance(answer, Failure)])
            logs = {rank: process.said(starts[rank]) for rank, process in enumerate(team)}
            raise RankError(_told(answers) + "".join(f"--- rank {r} printed:\n{s}\n" for r, s in logs.items() if s))
        return [answers[rank] for rank in range(ranks)]

    def kill(self, team: list[Process]) -> None:
        for process in team:
            process.process.kill()
            process.process.join()
            process.connection.close()
        self.processes = [process for process in self.processes if process not in team]

    def close(self) -> dict[int, int | None]:
        for process in self.processes:
            process.connection.send_bytes(b"")
        for process in self.processes:
            process.process.join(60)
        exits = {n: process.process.exitcode for n, process in enumerate(self.processes)}
        codes = {n: code for n, code in exits.items() if code != 0}  # None: it has not ended
        self.kill(self.processes)
        if self.folder is not None:
            self.folder.cleanup()
            self.folder = None
        return codes

    def _path(self) -> Path:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="ranks")
        return Path(self.folder.name)

    def _team(self, ranks: int) -> list[Process]:
        self.kill([process for process in self.processes if not process.process.is_alive()])
        while len(self.processes) < ranks:
            self.processes.append(Process(self._path(), next(self.numbers)))
        return self.processes[:ranks]

    def _answers(
        self, team: list[Process], timeout: float, dies: set[int], stalls: int | None
    ) -> tuple[dict[int, Any], list[int]]:
        """What the ranks answered, and those that did not in time."""
        ranks = {process.connection: rank for rank, process in enumerate(team)}
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + timeout
        while ranks:
            if stalls is not None and list(ranks.values()) == [stalls]:
                team[stalls].process.kill()
            ready = wait(list(ranks), max(0.0, deadline - time.monotonic()))
            if not ready:
                return answers, sorted(ranks.values())
            for connection in ready:
                assert isinstance(connection, Connection)
                rank = ranks.pop(connection)
                answers[rank] = _received(connection, team[rank], expected=rank in {*dies, stalls})
                if isinstance(answers[rank], Failure):
                    deadline = min(deadline, time.monotonic() + GRACE)
        return answers, []


class Failure(NamedTuple):
    text: str


def _received(connection: Connection, process: Process, expected: bool) -> Any:
    try:
        answer = pickle.loads(connection.recv_bytes())
    except (EOFError, ConnectionResetError):
        process.process.join(60)
        code = process.process.exitcode
        return Gone(code) if expected else Failure(f"the process ended with exit code {code}")
    return Failure("this rank was expected to die") if expected and not isinstance(answer, Failure) else answer


def _told(answers: dict[int, Any]) -> str:
    # In the order of their arrival: the first failure is the cause of the others as a rule.
    failures = [(rank, answer) for rank, answer in answers.items() if isinstance(answer, Failure)]
    return "".join(f"--- rank {rank} failed:\n{failure.text}\n" for rank, failure in failures)


def _dumped(process: Process, start: int) -> str:
    if process.process.pid is not None and process.process.is_alive():
        os.kill(process.process.pid, signal.SIGUSR1)
        until = time.monotonic() + DUMP
        while END not in process.said(start) and time.monotonic() < until:
            time.sleep(0.1)
    return process.said(start)


_pool = Pool()
atexit.register(close)


def _serve(connection: Connection, log: str) -> None:
    """The life of a process of the pool."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    unseen: list[str] = []  # errors that nobody could catch
    threading.excepthook = lambda hook: unseen.append(
        "".join(traceback.format_exception(hook.exc_type, hook.exc_value, hook.exc_traceback))
    )
    sys.unraisablehook = lambda hook: unseen.append(
        "".join(traceback.format_exception(hook.exc_type, hook.exc_value, hook.exc_traceback))
    )
    while data := _next(connection):
        answer = _done(data)
        if unseen:
            answer = Failure("\n".join([*unseen, *([answer.text] if isinstance(answer, Failure) else [])]))
        connection.send_bytes(pickle.dumps(answer))
        if isinstance(answer, Failure):  # a script would end here too, and the other ranks would hear of it
            os._exit(1)


def _next(connection: Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except EOFError:  # the tests were killed
        return b""


def _done(data: bytes) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            job: Job = pickle.loads(data)
            # Longer than any call may take: a hang is to be found as a hang, not as gloo's own timeout.
            dist.init_process_group(
                "gloo",
                store=dist.FileStore(job.store, job.ranks),  # type: ignore[attr-defined]
                rank=job.rank,
                world_size=job.ranks,
                timeout=timedelta(seconds=600),
            )
            try:
                return job.function(*job.args)
            finally:
                dist.destroy_process_group()
    except BaseException:
        return Failure(traceback.format_exc())
