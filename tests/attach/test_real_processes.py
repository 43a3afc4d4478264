"""The harness of the other tests reports errors, warnings and hangs of a rank."""

import os
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist

from .processes import Exited, HangError, RankError, run


def rank_and_sum(number: int) -> tuple[int, int, int]:
    total = torch.tensor([number + dist.get_rank()])
    dist.all_reduce(total)
    return dist.get_rank(), dist.get_world_size(), int(total)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_rank_runs_the_function_in_one_group(ranks: int) -> None:
    total = sum(10 + rank for rank in range(ranks))
    assert run(rank_and_sum, 10, ranks=ranks) == [(rank, ranks, total) for rank in range(ranks)]


def fail_on_rank_1() -> None:
    if dist.get_rank() == 1:
        raise KeyError("a word to look for")
    dist.barrier()


def test_an_error_on_one_rank_is_raised_with_its_traceback() -> None:
    with pytest.raises(RankError, match=r"(?s)fail_on_rank_1.*a word to look for"):
        run(fail_on_rank_1)


def warn() -> None:
    warnings.warn("a warning", stacklevel=1)


def test_a_warning_is_an_error() -> None:
    with pytest.raises(RankError, match="UserWarning: a warning"):
        run(warn, ranks=1)


def fail_in_a_thread() -> None:
    def fail() -> None:
        raise KeyError("raised in a thread")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def test_an_error_in_a_thread_of_a_rank_is_an_error() -> None:
    with pytest.raises(RankError, match="raised in a thread"):
        run(fail_in_a_thread, ranks=1)


def sleep() -> None:
    time.sleep(1000)


def test_a_hang_is_an_error_with_its_stack_and_the_pool_works_afterwards() -> None:
    run(rank_and_sum, 5, ranks=1)  # so that the process is up: a late start would also time out
    with pytest.raises(HangError, match="in sleep"):
        run(sleep, ranks=1, timeout=3)
    assert run(rank_and_sum, 5, ranks=1) == [(0, 1, 5)]


def exit_with_7() -> None:
    os._exit(7)


def test_a_process_that_exits_is_an_error_unless_expected() -> None:
    with pytest.raises(RankError, match="exit code 7"):
        run(exit_with_7, ranks=1)
    assert run(exit_with_7, ranks=1, dies=0) == [Exited(7)]
