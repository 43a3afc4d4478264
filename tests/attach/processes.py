"""Runs functions on real gloo ranks.

Starting a process takes seconds, most of them for importing torch. So processes are forked from one that has imported
everything and done nothing else, and a pool of them stays alive between tests. Every call gets a process group of its
own. Processes that hang or fail are killed, and replaced at the next call.
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

GRACE = 20.0  # seconds for the other ranks to end once one has failed
DUMP_TIMEOUT = 10.0  # seconds for a hanging process to write its stack
STACK_END = "in _serve"  # the last line of a complete stack: the first function of a process


class RankError(AssertionError):
    """A rank raised an error; the message contains its traceback."""


class HangError(AssertionError):
    """A rank did not end in time; the message contains the stack of every thread."""


class Job(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    rank: int
    ranks: int
    store: str


class Exited(NamedTuple):
    """The result of a rank that was expected to die."""

    exit_code: int | None


def run(
    function: Callable[..., Any],
    *args: Any,
    ranks: int = 2,
    timeout: float = 60,
    dies: int | Collection[int] = (),
    stalls: int | None = None,
) -> list[Any]:
    """Run a module-level function on each rank; returns the results.

    The ranks in `dies` are expected to die. The rank `stalls` is expected to hang: it is killed after all others ended.
    """
    return _pool.run(function, args, ranks, timeout, {dies} if isinstance(dies, int) else set(dies), stalls)


def close() -> dict[int, int | None]:
    """End the pool's processes; returns the exit codes of those that exited with an error, by number."""
    return _pool.close()


class Process:
    def __init__(self, folder: Path, number: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([f"{__package__}.warm", __name__])
        self.connection, remote = context.Pipe()
        self.log = folder / f"process{number}.log"
        self.log.touch()
        self.process = context.Process(target=_serve, args=(remote, str(self.log)), daemon=True)
        self.process.start()
        remote.close()

    def output(self, start: int = 0) -> str:
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
        processes = self._processes(ranks)
        starts = [process.log.stat().st_size for process in processes]
        store = str(self._path() / f"store{next(self.numbers)}")
        for rank, process in enumerate(processes):
            process.connection.send_bytes(pickle.dumps(Job(function, args, rank, ranks, store)))
        results, late = self._results(processes, timeout, dies, stalls)
        stacks_by_rank = {rank: _dumped_stack(processes[rank], starts[rank]) for rank in late}
        if late:
            self.kill(processes)
        else:  # the other processes run the next tests
            self.kill([processes[rank] for rank in {*dies, *(() if stalls is None else (stalls,))}])
        if late:
            stacks = "\n".join(f"--- stack of rank {rank}:\n{text}" for rank, text in stacks_by_rank.items())
            raise HangError(f"ranks {late} did not end in {timeout:g} s\n{_failures(results)}{stacks}")
        if any(isinstance(result, Failure) for result in results.values()):
            self.kill([processes[rank] for rank, result in results.items() if isinstance(result, Failure)])
            logs = {rank: process.output(starts[rank]) for rank, process in enumerate(processes)}
            raise RankError(_failures(results) + "".join(f"--- rank {r} printed:\n{s}\n" for r, s in logs.items() if s))
        return [results[rank] for rank in range(ranks)]

    def kill(self, processes: list[Process]) -> None:
        for process in processes:
            process.process.kill()
            process.process.join()
            process.connection.close()
        self.processes = [process for process in self.processes if process not in processes]

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

    def _processes(self, ranks: int) -> list[Process]:
        self.kill([process for process in self.processes if not process.process.is_alive()])
        while len(self.processes) < ranks:
            self.processes.append(Process(self._path(), next(self.numbers)))
        return self.processes[:ranks]

    def _results(
        self, processes: list[Process], timeout: float, dies: set[int], stalls: int | None
    ) -> tuple[dict[int, Any], list[int]]:
        """The results of the ranks, and the ranks that did not return in time."""
        ranks = {process.connection: rank for rank, process in enumerate(processes)}
        results: dict[int, Any] = {}
        deadline = time.monotonic() + timeout
        while ranks:
            if stalls is not None and list(ranks.values()) == [stalls]:
                processes[stalls].process.kill()
            ready = wait(list(ranks), max(0.0, deadline - time.monotonic()))
            if not ready:
                return results, sorted(ranks.values())
            for connection in ready:
                assert isinstance(connection, Connection)
                rank = ranks.pop(connection)
                results[rank] = _received(connection, processes[rank], expected=rank in {*dies, stalls})
                if isinstance(results[rank], Failure):
                    deadline = min(deadline, time.monotonic() + GRACE)
        return results, []


class Failure(NamedTuple):
    text: str


def _received(connection: Connection, process: Process, expected: bool) -> Any:
    try:
        result = pickle.loads(connection.recv_bytes())
    except (EOFError, ConnectionResetError):
        process.process.join(60)
        code = process.process.exitcode
        return Exited(code) if expected else Failure(f"the process ended with exit code {code}")
    return Failure("this rank was expected to die") if expected and not isinstance(result, Failure) else result


def _failures(results: dict[int, Any]) -> str:
    # In the order of arrival: usually the first failure caused the others.
    failures = [(rank, result) for rank, result in results.items() if isinstance(result, Failure)]
    return "".join(f"--- rank {rank} failed:\n{failure.text}\n" for rank, failure in failures)


def _dumped_stack(process: Process, start: int) -> str:
    if process.process.pid is not None and process.process.is_alive():
        os.kill(process.process.pid, signal.SIGUSR1)
        deadline = time.monotonic() + DUMP_TIMEOUT
        while STACK_END not in process.output(start) and time.monotonic() < deadline:
            time.sleep(0.1)
    return process.output(start)


_pool = Pool()
atexit.register(close)


def _serve(connection: Connection, log: str) -> None:
    """The main function of a process of the pool: runs jobs until the connection closes."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    unhandled: list[str] = []  # errors in threads and finalizers
    threading.excepthook = lambda hook: unhandled.append(
        "".join(traceback.format_exception(hook.exc_type, hook.exc_value, hook.exc_traceback))
    )
    sys.unraisablehook = lambda hook: unhandled.append(
        "".join(traceback.format_exception(hook.exc_type, hook.exc_value, hook.exc_traceback))
    )
    while data := _next(connection):
        result = _run_job(data)
        if unhandled:
            result = Failure("\n".join([*unhandled, *([result.text] if isinstance(result, Failure) else [])]))
        connection.send_bytes(pickle.dumps(result))
        if isinstance(result, Failure):  # as a script would, so that the other ranks see a closed connection
            os._exit(1)


def _next(connection: Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except EOFError:  # pytest was killed
        return b""


def _run_job(data: bytes) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            job: Job = pickle.loads(data)
            # Longer than any call may take, so that a hang is reported as a HangError, not as a timeout of gloo.
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
