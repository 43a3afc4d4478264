"""Loops are divided into stretches that cover a range once and in order, for any number of threads."""

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


def test_other_threads_take_over_the_stretches_of_a_delayed_one() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    others_done, by = threading.Event(), {}

    def loop(start: int, stop: int) -> None:
        by[start] = threading.get_ident()
        if start == 0:
            assert others_done.wait(30), "until all other stretches are done"
        elif len(by) == 2 * TURNS:
            others_done.set()

    try:
        assert len(spread(loop, 2 * TURNS * LONG)) == 2 * TURNS
    finally:
        torch.set_num_threads(before)
    assert len(set(by.values())) == 2
    assert [thread for start, thread in by.items() if thread == by[0]] == [by[0]]


def test_a_long_loop_runs_on_as_many_threads_as_torch_may_use(threads: int) -> None:
    lockstep = threading.Barrier(threads, timeout=30)  # passed only by that many threads at once
    if (os.cpu_count() or 1) < threads - 1:
        pytest.skip("the pool has a thread for each core")
    assert len(spread(lambda start, stop: lockstep.wait(), threads * LEAST)) == threads


def test_an_error_in_any_stretch_is_raised(threads: int) -> None:
    def fails(start: int, stop: int) -> None:
        if stop == 4 * LEAST:
            raise ValueError("the last stretch")

    with pytest.raises(ValueError, match="the last stretch"):
        spread(fails, 4 * LEAST)


def test_an_error_is_raised_only_after_all_stretches_have_ended() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    started, ended = threading.Event(), []

    def loop(start: int, stop: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert started.wait(30)
            raise ValueError("here")
        started.set()
        time.sleep(0.3)
        ended.append(stop)

    try:
        with pytest.raises(ValueError, match="here"):
            spread(loop, 2 * LEAST)
    finally:
        torch.set_num_threads(before)
    assert len(ended) == 1


def test_a_forked_child_starts_its_own_threads() -> None:
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
