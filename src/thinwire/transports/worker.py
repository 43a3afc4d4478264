"""The one queue per rank from which everything is said, so that all ranks say it in the same order."""

import atexit
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

GRACE = 5.0  # seconds for a job to end in when the process does; a peer that has died would never answer


class Worker:
    """A thread that does one job after the other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="thinwire", daemon=True)
        self._thread.start()
        _alive.add(self)

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        if self._closed:
            raise RuntimeError("thinwire is detached from this model")
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def wait(self) -> None:
        """Return when all that is queued is done."""
        if not self._closed:
            self.submit(lambda: None).result()

    def stop(self) -> None:
        """End when what is queued is done."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)

    def close(self) -> None:
        """Finish what is queued, then end."""
        self.stop()
        self._thread.join()

    def _work(self) -> None:
        # Gradients are data here; a thread of our own is free of the caller's autocast and inference modes too.
        with torch.no_grad():
            while (entry := self._jobs.get()) is not None:
                job, future = entry
                try:
                    future.set_result(job())
                except BaseException as error:  # whatever it is, it belongs to whoever waits for the job
                    future.set_exception(error)
                del entry, job, future  # what a finished job held must not outlive it


_alive: weakref.WeakSet[Worker] = weakref.WeakSet()  # a thread holds its worker for as long as it runs


@atexit.register
def _end_all() -> None:
    """Let every thread end before the interpreter does: one that is stopped within torch's code aborts the process."""
    for worker in list(_alive):
        worker.stop()
        worker._thread.join(GRACE)
