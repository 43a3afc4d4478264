"""Ranks that die or stall during training: detected in time, reported by all others, and continued without if set."""

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

from .processes import Exited, run
from .training import all_same, classifier, error_of, loss_of, parameters

RANKS, STEPS, FAILS_AT = 5, 24, 6
METHODS = ("powergossip", "Gossip(Difference(TopK(0.1)), rate=0.2)", "PushSum(overlap=2)")


def trained(method: str, failure: str, failing: tuple[int, ...], on_peer_loss: str, timeout: float) -> dict[str, Any]:
    """Train while some ranks fail at a step; the others return their error, or their models."""
    rank, model = dist.get_rank(), classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    handle = thinwire.attach(model, method, optimizer=optimizer, on_peer_loss=on_peer_loss, peer_timeout=timeout)
    start = time.monotonic()

    def train() -> None:
        nonlocal start
        for step in range(STEPS):
            if rank in failing and step == FAILS_AT + failing.index(rank):
                os.kill(os.getpid(), signal.SIGKILL if failure == "killed" else signal.SIGSTOP)
            if step == FAILS_AT:
                start = time.monotonic()
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    if on_peer_loss == "raise":
        return {"error": error_of(train), "seconds": time.monotonic() - start}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
        average = handle.average()
    weight = getattr(handle._session.state, "weight", 1.0)
    found = {
        "average": parameters(average),
        "local": parameters(model),
        "ranks": handle.ranks,
        "steps": handle.meter.steps,
        "weight": weight,
        "consensus": handle.meter.consensus,
        "warnings": [str(warning.message) for warning in caught],
        "seconds": time.monotonic() - start,
        "sent": dict(handle.meter.sent),
    }
    handle.detach()
    return found


@pytest.mark.parametrize("method", METHODS)
def test_survivors_continue_without_a_killed_rank(method: str) -> None:
    *others, killed, last = run(trained, method, "killed", (3,), "continue", 20.0, ranks=RANKS, dies=3)
    assert killed == Exited(-signal.SIGKILL)
    others.append(last)
    assert all_same(found["average"] for found in others)
    for found in others:
        assert found["ranks"] == (0, 1, 2, 4)
        assert found["steps"] == STEPS
        assert any("rank 3 failed" in text and "the other 4 ranks continue" in text for text in found["warnings"])
        assert found["consensus"] < 0.5
    assert sum(found["weight"] for found in others) == pytest.approx(4)
    for name, mean in others[0]["average"].items():
        expected = torch.stack([found["local"][name] for found in others]).mean(0)
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-5)


def test_survivors_continue_after_two_failures() -> None:
    found = run(trained, "powergossip", "killed", (1, 3), "continue", 20.0, ranks=RANKS, dies=(1, 3))
    others = [found[rank] for rank in (0, 2, 4)]
    assert all_same(other["average"] for other in others)
    assert all(other["ranks"] == (0, 2, 4) and other["steps"] == STEPS for other in others)


def disconnected_graph() -> tuple[str, str]:
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

    return error_of(train)


def test_survivors_of_a_disconnected_graph_raise_an_error_that_names_the_failed_rank() -> None:
    first, _, last = run(disconnected_graph, ranks=3, dies=1)
    for kind, text in (first, last):
        assert kind == "PeerLostError"
        assert (
            "rank 1 failed: its connection was closed; the other 2, renumbered from 0, cannot continue: your graph"
            in text
        )


def machine_failure(timeout: float) -> tuple[tuple[int, ...], float]:
    rank, model = dist.get_rank(), classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    path = thinwire.Gossip(thinwire.Identity(), thinwire.Edges(((0, 1), (1, 2), (2, 3))))
    handle = thinwire.attach(model, path, optimizer=optimizer, on_peer_loss="continue", peer_timeout=timeout)
    pids: list[Any] = [None] * 4
    dist.all_gather_object(pids, os.getpid())
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(4):
            if rank == 2 and step == 1:  # together with the other rank of its machine
                os.kill(pids[3], signal.SIGKILL)
                while not ended(pids[3]):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    return handle.ranks, time.monotonic() - start


def ended(pid: int) -> bool:
    """Whether a process has closed its connections, even if its parent has not waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_failed_rank_with_failed_neighbors_only_is_not_waited_for() -> None:
    timeout = 60.0
    for ranks, seconds in run(machine_failure, timeout, ranks=4, dies=(2, 3))[:2]:
        assert ranks == (0, 1)
        assert seconds < timeout


def failure_while_regrouping() -> tuple[str, str]:
    model = classifier()
    optimizer = SGD(model.parameters(), lr=0.1)
    thinwire.attach(model, "dpsgd", optimizer=optimizer, on_peer_loss="continue", peer_timeout=5.0)
    rank = dist.get_rank()
    if rank == 1:
        ProcessGroupTransport.regroup = lambda self, plan: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    loss_of(model, 0).backward()
    return error_of(optimizer.step)


def test_a_failure_while_survivors_regroup_is_an_error() -> None:
    kind, text = run(failure_while_regrouping, ranks=3, dies=(1, 2))[0]
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
    errors = error_of(handle.detach), error_of(handle.detach)
    return *errors, threads() - before


def test_a_handle_is_detached_even_if_the_message_in_flight_fails() -> None:
    (kind, text), (again, _), threads = run(detached, ranks=2, dies=1)[0]
    assert kind == "PeerLostError"
    assert "rank 1 failed" in text
    assert again == "nothing"
    assert threads <= 0


@pytest.mark.parametrize("method", ["osgp", "topk"])
def test_a_killed_rank_is_an_error_that_names_it_on_every_other_rank(method: str) -> None:
    timeout = 60.0
    *others, killed, last = run(trained, method, "killed", (3,), "raise", timeout, ranks=RANKS, dies=3)
    assert killed == Exited(-signal.SIGKILL)
    for found in (*others, last):
        kind, text = found["error"]
        assert kind == "PeerLostError"
        assert "rank 3 failed: its connection was closed. This is rank" in text
        assert ("on_peer_loss='continue'" in text) == (method != "topk")
        assert found["seconds"] < timeout, "sooner than the timeout of a live rank"


def test_a_stalled_rank_is_detected_within_the_timeout() -> None:
    *others, stalled, last = run(trained, "dpsgd", "stopped", (3,), "raise", 4.0, ranks=RANKS, stalls=3)
    assert isinstance(stalled, Exited)
    for found in (*others, last):
        kind, text = found["error"]
        assert kind == "PeerLostError"
        assert "rank 3 has not answered for 4 seconds" in text
        assert 3.5 < found["seconds"] < 25
