"""Ranks that die or stall while others train: noticed in time, told by all alike, and gone on without if so asked."""

import os
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.optim import SGD

import thinwire
from thinwire.transports import ProcessGroupTransport

from .processes import Gone, run
from .training import all_same, classifier, loss_of, parameters, refusal

RANKS, STEPS, AT = 5, 24, 6
METHODS = ("powergossip", "Gossip(Difference(TopK(0.1)), rate=0.2)", "PushSum(overlap=2)")


def trained(method: str, how: str, who: tuple[int, ...], on_peer_loss: str, timeout: float) -> dict[str, Any]:
    """Train while some ranks come to their end at a step; the others tell how it went."""
    rank, model = dist.get_rank(), classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    handle = thinwire.attach(model, method, optimizer=optimizer, on_peer_loss=on_peer_loss, peer_timeout=timeout)
    noticed = time.monotonic()

    def train() -> None:
        nonlocal noticed
        for step in range(STEPS):
            if rank in who and step == AT + who.index(rank):
                os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            if step == AT:
                noticed = time.monotonic()
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    if on_peer_loss == "raise":
        told = refusal(train)
        return {"told": told, "seconds": time.monotonic() - noticed}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
        average = handle.average()
    weight = getattr(handle._session.state, "weight", 1.0)
    found = {
        "average": parameters(average),
        "own": parameters(model),
        "ranks": handle.ranks,
        "steps": handle.meter.steps,
        "weight": weight,
        "consensus": handle.meter.consensus,
        "told": [str(warning.message) for warning in caught],
        "seconds": time.monotonic() - noticed,
        "sent": dict(handle.meter.sent),
    }
    handle.detach()
    return found


@pytest.mark.parametrize("method", METHODS)
def test_the_others_go_on_without_a_rank_that_is_killed(method: str) -> None:
    *others, gone, last = run(trained, method, "killed", (3,), "continue", 20.0, ranks=RANKS, dies=3)
    assert gone == Gone(-signal.SIGKILL)
    others.append(last)
    assert all_same(found["average"] for found in others)
    for found in others:
        assert found["ranks"] == (0, 1, 2, 4)
        assert found["steps"] == STEPS
        assert any("rank 3 failed" in told and "the other 4 ranks continue" in told for told in found["told"])
        assert found["consensus"] < 0.5
    assert sum(found["weight"] for found in others) == pytest.approx(4)
    for name, mean in others[0]["average"].items():
        there = torch.stack([found["own"][name] for found in others]).mean(0)
        torch.testing.assert_close(mean, there, rtol=1e-4, atol=1e-5)


def test_two_may_be_lost_one_after_the_other() -> None:
    found = run(trained, "powergossip", "killed", (1, 3), "continue", 20.0, ranks=RANKS, dies=(1, 3))
    others = [found[rank] for rank in (0, 2, 4)]
    assert all_same(other["average"] for other in others)
    assert all(other["ranks"] == (0, 2, 4) and other["steps"] == STEPS for other in others)


def cut_off() -> tuple[str, str]:
    model = classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    path = thinwire.Gossip(thinwire.Identity(), thinwire.Edges(((0, 1), (1, 2))))
    thinwire.attach(model, path, optimizer=optimizer, on_peer_loss="continue", peer_timeout=20.0)

    def train() -> None:
        for step in range(3):
            if dist.get_rank() == 1 and step == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    return refusal(train)


def test_ranks_that_are_cut_off_from_each_other_say_who_was_lost() -> None:
    first, _, last = run(cut_off, ranks=3, dies=1)
    for kind, text in (first, last):
        assert kind == "PeerLostError"
        assert (
            "rank 1 failed: its connection was closed; the other 2, renumbered from 0, cannot continue: your graph"
            in text
        )


def machine_gone(timeout: float) -> tuple[tuple[int, ...], float]:
    rank, model = dist.get_rank(), classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    path = thinwire.Gossip(thinwire.Identity(), thinwire.Edges(((0, 1), (1, 2), (2, 3))))
    handle = thinwire.attach(model, path, optimizer=optimizer, on_peer_loss="continue", peer_timeout=timeout)
    processes: list[Any] = [None] * 4
    dist.all_gather_object(processes, os.getpid())
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(4):
            if rank == 2 and step == 1:  # with the other one of its machine
                os.kill(processes[3], signal.SIGKILL)
                while not ended(processes[3]):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    return handle.ranks, time.monotonic() - start


def ended(process: int) -> bool:
    """Whether a process has closed all that it had open, though its parent may not have been told yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_ranks_that_spoke_with_lost_ones_only_are_not_waited_for() -> None:
    timeout = 60.0
    for ranks, seconds in run(machine_gone, timeout, ranks=4, dies=(2, 3))[:2]:
        assert ranks == (0, 1)
        assert seconds < timeout


def lost_in_between() -> tuple[str, str]:
    model = classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    thinwire.attach(model, "dpsgd", optimizer=optimizer, on_peer_loss="continue", peer_timeout=5.0)
    rank = dist.get_rank()
    if rank == 1:
        ProcessGroupTransport.regroup = lambda self, decision: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    loss_of(model, 0).backward()
    return refusal(optimizer.step)


def test_a_loss_while_the_others_regroup_is_one_clear_error() -> None:
    kind, text = run(lost_in_between, ranks=3, dies=(1, 2))[0]
    assert kind == "PeerLostError"
    assert "the other 2 could not create a process group: one more may have failed" in text


def detached() -> tuple[tuple[str, str], tuple[str, str], int]:
    def threads() -> int:
        return sum(thread.name == "thinwire" for thread in threading.enumerate())

    before, model = threads(), classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    handle = thinwire.attach(model, "osgp", optimizer=optimizer, peer_timeout=20.0)
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    loss_of(model, 0).backward()
    optimizer.step()
    told = refusal(handle.detach), refusal(handle.detach)
    return *told, threads() - before


def test_a_handle_is_detached_even_if_what_was_on_its_way_is_lost() -> None:
    (kind, text), (again, _), threads = run(detached, ranks=2, dies=1)[0]
    assert kind == "PeerLostError"
    assert "rank 1 failed" in text
    assert again == "nothing"
    assert threads <= 0


@pytest.mark.parametrize("method", ["osgp", "topk"])
def test_one_clear_error_on_every_rank_if_one_is_killed(method: str) -> None:
    timeout = 60.0
    *others, gone, last = run(trained, method, "killed", (3,), "raise", timeout, ranks=RANKS, dies=3)
    assert gone == Gone(-signal.SIGKILL)
    for found in (*others, last):
        kind, text = found["told"]
        assert kind == "PeerLostError"
        assert "rank 3 failed: its connection was closed. This is rank" in text
        assert ("on_peer_loss='continue'" in text) == (method != "topk")
        assert found["seconds"] < timeout, "sooner than a rank that is alive would have to answer"


def test_a_rank_that_stalls_is_noticed_in_the_time_that_was_given() -> None:
    *others, stalled, last = run(trained, "dpsgd", "stopped", (3,), "raise", 4.0, ranks=RANKS, stalls=3)
    assert isinstance(stalled, Gone)
    for found in (*others, last):
        kind, text = found["told"]
        assert kind == "PeerLostError"
        assert "rank 3 has not answered for 4 seconds" in text
        assert 3.5 < found["seconds"] < 25
