"""The worker runs jobs in one thread, one after the other."""

import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch

from thinwire.transports import Worker


def test_jobs_run_in_the_order_of_submission() -> None:
    worker, done = Worker(), []
    gate = threading.Event()
    first = worker.submit(lambda: (gate.wait(10), done.append(0)))
    futures = [worker.submit(lambda i=i: done.append(i)) for i in range(1, 50)]
    assert not first.done()
    gate.set()
    for future in futures:
        future.result(10)
    assert done == list(range(50))
    worker.close()


def test_submit_returns_a_future_of_the_result() -> None:
    worker = Worker()
    assert worker.submit(lambda: 6 * 7).result(10) == 42
    worker.close()


def test_all_jobs_run_in_one_thread_other_than_the_callers() -> None:
    worker = Worker()
    threads = {worker.submit(threading.get_ident).result(10) for _ in range(5)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    worker.close()


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [KeyError("missing"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_error_is_raised_by_the_future_and_the_next_job_runs(error: BaseException) -> None:
    worker = Worker()
    failed = worker.submit(lambda: fail(error))
    following = worker.submit(lambda: "alive")
    with pytest.raises(type(error)) as caught:
        failed.result(10)
    assert caught.value is error
    assert following.result(10) == "alive"
    worker.close()


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "thinwire"]


def test_close_finishes_queued_jobs_and_ends_the_thread() -> None:
    before = workers()
    worker, done = Worker(), []
    (thread,) = (thread for thread in workers() if thread not in before)
    for i in range(5):
        worker.submit(lambda i=i: (time.sleep(0.01), done.append(i)))
    worker.close()
    assert done == list(range(5))
    assert not thread.is_alive()


def test_a_closed_worker_refuses_jobs_and_may_be_closed_again() -> None:
    worker = Worker()
    worker.close()
    worker.close()
    with pytest.raises(RuntimeError, match="detached"):
        worker.submit(lambda: None)


def test_its_thread_does_not_keep_a_process_alive() -> None:
    before = workers()
    worker = Worker()
    (thread,) = (thread for thread in workers() if thread not in before)
    assert thread.daemon
    worker.close()


def test_jobs_run_without_autograd_and_without_the_callers_modes() -> None:
    worker = Worker()
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        tracked, autocast = worker.submit(lambda: (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))).result(
            10
        )
    assert not tracked
    assert not autocast
    worker.close()


def test_a_finished_job_keeps_nothing_alive() -> None:
    class Argument:
        pass

    worker, argument = Worker(), Argument()
    reference = weakref.ref(argument)
    worker.submit(lambda argument=argument: id(argument)).result(10)
    del argument
    worker.submit(lambda: None).result(10)  # the thread has moved on
    assert reference() is None
    worker.close()


def test_a_process_ends_after_its_last_job() -> None:
    # A thread that is stopped inside torch code aborts the process.
    script = """
import time
from thinwire.transports import Worker
Worker().submit(lambda: (time.sleep(0.5), print("done", flush=True)))
"""
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (completed.stdout, completed.stderr, completed.returncode) == ("done\n", "", 0)
