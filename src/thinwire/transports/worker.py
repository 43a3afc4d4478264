"""The queue of a rank: all exchanges run on it one by one, so their order is the same on all ranks."""

import atexit
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

GRACE = 5.0  # seconds that a job may still take when the process exits; a peer that died would never answer


class Queue(ABC):
    """Runs jobs one after the other."""

    @abstractmethod
    def submit(self, job: Callable[[], Any]) -> Future[Any]: ...

    @abstractmethod
    def wait(self) -> None:
        """Return when all queued jobs are done."""

    @abstractmethod
    def stop(self) -> None:
        """Accept no more jobs; end when the queued ones are done, without waiting for that."""

    @abstractmethod
    def close(self) -> None:
        """Accept no more jobs, and wait until the queued ones are done."""


class ImmediateQueue(Queue):
    """Runs each job when it is submitted, for ranks that take turns: while one computes, no other rank would answer."""

    def __init__(self) -> None:
        self._closed = False

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        _check_open(self._closed)
        future: Future[Any] = Future()
        _run(job, future)
        return future

    def wait(self) -> None:
        pass

    def stop(self) -> None:
        self._closed = True

    def close(self) -> None:
        self._closed = True


class Worker(Queue):
    """A thread that runs one job after the other."""

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
        # Autocast and inference mode are per thread, so the caller's do not apply here.
        while (entry := self._jobs.get()) is not None:
            _run(*entry)
            del entry  # do not keep what the finished job references alive


@torch.no_grad()
def _run(job: Callable[[], Any], future: Future[Any]) -> None:
    """Without autograd: to a job, gradients are plain data."""
    try:
        future.set_result(job())
    except BaseException as error:  # of any kind: the caller that waits for the job gets it
        future.set_exception(error)


def _check_open(closed: bool) -> None:
    if closed:
        raise RuntimeError("thinwire is detached from this model")


_alive: weakref.WeakSet[Worker] = weakref.WeakSet()  # a running thread keeps its worker alive


@atexit.register
def _end_all() -> None:
    """End every thread before the interpreter exits: a thread that is stopped inside torch code aborts the process."""
    for worker in list(_alive):
        worker.stop()
        worker._thread.join(GRACE)
