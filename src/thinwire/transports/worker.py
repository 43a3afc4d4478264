"""The one queue per rank from which everything is said, so that all ranks say it in the same order."""

import atexit
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

GRACE = 5.0  # seconds for a job to end in when the process does; a peer that has died would never answer


class Queue(ABC):
    """Does one job after the other."""

    @abstractmethod
    def submit(self, job: Callable[[], Any]) -> Future[Any]: ...

    @abstractmethod
    def wait(self) -> None:
        """Return when all that is queued is done."""

    @abstractmethod
    def stop(self) -> None:
        """End when what is queued is done."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is queued, then end."""


class ImmediateQueue(Queue):
    """Does each job as it comes, for ranks that take turns: while one computes, no other one would answer."""

    def __init__(self) -> None:
        self._closed = False

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        _check_open(self._closed)
        future: Future[Any] = Future()
        _do(job, future)
        return future

    def wait(self) -> None:
        pass

    def stop(self) -> None:
        self._closed = True

    def close(self) -> None:
        self._closed = True


class Worker(Queue):
    """A thread that does one job after the other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="thinwire", daemon=True)
        self._thread.start()
        _alive.add(self)

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        _check_open(self._closed)
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def wait(self) -> None:
        if not self._closed:
            self.submit(lambda: None).result()

    def stop(self) -> None:
        if not self._closed:
            self._closed = True
            self._jobs.put(None)

    def close(self) -> None:
        self.stop()
        self._thread.join()

    def _work(self) -> None:
        # A thread of our own is free of the caller's autocast and inference modes.
        while (entry := self._jobs.get()) is not None:
            _do(*entry)
            del entry  # what a finished job held must not outlive it


@torch.no_grad()
def _do(job: Callable[[], Any], future: Future[Any]) -> None:
    """Gradients are data here."""
    try:
        future.set_result(job())
    except BaseException as error:  # whatever it is, it belongs to whoever waits for the job
        future.set_exception(error)


def _check_open(closed: bool) -> None:
    if closed:
        raise RuntimeError("thinwire is detached from this model")


_alive: weakref.WeakSet[Worker] = weakref.WeakSet()  # a thread holds its worker for as long as it runs


@atexit.register
def _end_all() -> None:
    """Let every thread end before the interpreter does: one that is stopped within torch's code aborts the process."""
    for worker in list(_alive):
        worker.stop()
        worker._thread.join(GRACE)
