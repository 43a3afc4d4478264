"""The harness that the other tests rely on does not hide what goes wrong on a rank."""

import os
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist

from .processes import Gone, HangError, RankError, run


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


def test_an_error_of_one_rank_is_shown_with_its_traceback() -> None:
    with pytest.raises(RankError, match=r"(?s)fail_on_rank_1.*a word to look for"):
        run(fail_on_rank_1)


def warn() -> None:
    warnings.warn("a warning", stacklevel=1)


def test_a_warning_is_an_error() -> None:
    with pytest.raises(RankError, match="UserWarning: a warning"):
        run(warn, ranks=1)


def fail_in_a_thread() -> None:
    def fail() -> None:
        raise KeyError("nobody waits for me")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def test_an_error_in_a_thread_of_a_rank_is_an_error() -> None:
    with pytest.raises(RankError, match="nobody waits for me"):
        run(fail_in_a_thread, ranks=1)


def sleep() -> None:
    time.sleep(1000)


def test_a_hang_is_ended_shows_where_it_was_and_leaves_a_working_pool() -> None:
    run(rank_and_sum, 5, ranks=1)  # a process that still starts would be late for another reason
    with pytest.raises(HangError, match="in sleep"):
        run(sleep, ranks=1, timeout=3)
    assert run(rank_and_sum, 5, ranks=1) == [(0, 1, 5)]


def leave() -> None:
    os._exit(7)


def test_a_lost_process_is_an_error_unless_expected() -> None:
    with pytest.raises(RankError, match="exit code 7"):
        run(leave, ranks=1)
    assert run(leave, ranks=1, dies=0) == [Gone(7)]
