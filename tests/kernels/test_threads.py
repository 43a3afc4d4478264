"""Loops are cut into stretches that cover a range once and in order, whatever the number of threads."""

import os
import threading
import time

import pytest
import torch

from thinwire.kernels.threads import LEAST, LONG, TURNS, spread


@pytest.mark.parametrize("multiple", [1, 50, 512])
@pytest.mark.parametrize("size", [0, 1, 511, LEAST - 1, 2 * LEAST, 7 * LEAST + 13])
def test_stretches_cover_the_range_in_order(size: int, multiple: int, threads: int) -> None:
    stretches = spread(lambda start, stop: (start, stop), size, multiple)
    covered = [i for start, stop in stretches for i in range(start, stop)]
    assert covered == list(range(size))
    assert len(stretches) <= threads
    assert all(start % multiple == 0 for start, _ in stretches)


def test_a_thread_that_is_held_up_leaves_its_stretches_to_the_others() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    held, by = threading.Event(), {}

    def loop(start: int, stop: int) -> None:
        by[start] = threading.get_ident()
        if start == 0:
            assert held.wait(30), "until all other stretches are done"
        elif len(by) == 2 * TURNS:
            held.set()

    try:
        assert len(spread(loop, 2 * TURNS * LONG)) == 2 * TURNS
    finally:
        torch.set_num_threads(before)
    assert len(set(by.values())) == 2
    assert [thread for start, thread in by.items() if thread == by[0]] == [by[0]]


def test_a_long_loop_runs_on_as_many_threads_as_torch_may_use(threads: int) -> None:
    lockstep = threading.Barrier(threads, timeout=30)  # which only as many threads as that get past
    if (os.cpu_count() or 1) < threads - 1:
        pytest.skip("the pool has a thread for each core")
    assert len(spread(lambda start, stop: lockstep.wait(), threads * LEAST)) == threads


def test_an_error_in_any_stretch_is_raised(threads: int) -> None:
    def fails(start: int, stop: int) -> None:
        if stop == 4 * LEAST:
            raise ValueError("the last stretch")

    with pytest.raises(ValueError, match="the last stretch"):
        spread(fails, 4 * LEAST)


def test_no_stretch_is_at_work_any_more_when_an_error_is_raised() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    begun, ended = threading.Event(), []

    def loop(start: int, stop: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(30)
            raise ValueError("here")
        begun.set()
        time.sleep(0.3)
        ended.append(stop)

    try:
        with pytest.raises(ValueError, match="here"):
            spread(loop, 2 * LEAST)
    finally:
        torch.set_num_threads(before)
    assert len(ended) == 1


def test_a_forked_child_has_threads_of_its_own() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    spread(lambda start, stop: stop, 2 * LEAST)
    child = os.fork()
    if child == 0:  # in the child; it must not go on with the tests
        try:
            os._exit(0 if len(spread(lambda start, stop: stop, 2 * LEAST)) == 2 else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    torch.set_num_threads(before)
    assert os.waitstatus_to_exitcode(status) == 0
