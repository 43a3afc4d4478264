"""Who was lost, and who goes on: told from the notes of those who noticed."""

import threading
import time
from typing import Any

import pytest
import torch.distributed as dist

from thinwire import PeerLostError
from thinwire.transports import failure_agreement as meeting
from thinwire.transports.failure_agreement import (
    DISCONNECTED,
    STALLED,
    FailureAgreement,
    FailureReport,
    RegroupPlan,
    describe_failures,
)


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "GRACE", {DISCONNECTED: 0.1, STALLED: 0.3})
    monkeypatch.setattr(meeting, "POLL", 0.01)


def all_at(
    notes: dict[int, FailureReport], size: int, act: str, timeout: float = 2.0, late: float = 0.0
) -> dict[int, Any]:
    """What comes of a meeting for each rank that leaves a note; the last one is late."""
    store, found = dist.HashStore(), {}

    def attend(rank: int, wait: float) -> None:
        there = FailureAgreement(store, "test", rank, size, timeout)
        threading.Event().wait(wait)
        there.leave(notes[rank])
        try:
            found[rank] = getattr(there, act)()
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=attend, args=(r, late * (r == max(notes)))) for r in notes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def test_who_leaves_no_note_is_lost_and_not_who_waited_for_it() -> None:
    # On a ring of 5, rank 2 dies. 1 and 3 notice; when they hang up, 0 and 4 do.
    notes = {
        1: FailureReport(7, {2: DISCONNECTED}),
        3: FailureReport(7, {2: DISCONNECTED}),
        0: FailureReport(8, {1: DISCONNECTED}),
        4: FailureReport(8, {3: DISCONNECTED}),
    }
    assert all_at(notes, 5, "cause") == {rank: {2: DISCONNECTED} for rank in notes}
    decided = all_at(notes, 5, "decide")
    assert decided == dict.fromkeys(notes, RegroupPlan((0, 1, 3, 4), {2: DISCONNECTED}, 8))


def test_a_rank_that_only_waited_has_time_to_say_so() -> None:
    notes = {0: FailureReport(3, {1: STALLED}), 1: FailureReport(3, {2: STALLED})}
    assert all_at(notes, 3, "cause", late=0.15) == {0: {2: STALLED}, 1: {2: STALLED}}
    assert all_at(notes, 3, "decide", late=0.15)[0].survivors == (0, 1)


def test_who_is_blamed_by_nobody_is_waited_for() -> None:
    notes = {0: FailureReport(3, {1: DISCONNECTED}), 2: FailureReport(4, {0: DISCONNECTED})}
    decided = all_at(notes, 3, "decide", late=0.8)
    assert decided == dict.fromkeys(notes, RegroupPlan((0, 2), {1: DISCONNECTED}, 4))


def test_who_never_comes_is_lost_too() -> None:
    decided = all_at({0: FailureReport(3, {1: DISCONNECTED})}, 3, "decide", timeout=0.5)
    assert decided == {0: RegroupPlan((0,), {1: DISCONNECTED, 2: STALLED}, 3)}


def test_a_connection_that_breaks_between_ranks_that_are_alive_is_told_of_at_once() -> None:
    notes = {
        0: FailureReport(3, {1: DISCONNECTED}),
        1: FailureReport(3, {0: DISCONNECTED}),
        2: FailureReport(3, {1: STALLED}),
    }
    start = time.monotonic()
    assert all_at(notes, 3, "cause", timeout=10.0) == {rank: {} for rank in notes}
    assert time.monotonic() - start < 5


def test_who_leaves_by_itself_says_why() -> None:
    notes = {
        0: FailureReport(3, {1: DISCONNECTED}),
        1: FailureReport(left="NaN"),
        2: FailureReport(3, {1: DISCONNECTED}),
    }
    found = all_at(notes, 3, "cause")
    assert found[0] == found[2] == {1: "NaN"}
    decided = all_at(notes, 3, "decide")
    assert decided[0] == decided[2] == RegroupPlan((0, 2), {1: "NaN"}, 3)


def test_one_decision_holds_for_all() -> None:
    store = dist.HashStore()
    first, second = (FailureAgreement(store, "test", rank, 3, 0.4) for rank in (0, 1))
    first.leave(FailureReport(5, {1: DISCONNECTED, 2: DISCONNECTED}))
    alone = first.decide()
    second.leave(FailureReport(9, {}))  # it was thought lost, and comes back
    assert second.decide() == alone == RegroupPlan((0,), {1: DISCONNECTED, 2: DISCONNECTED}, 5)


class Gone:
    """A store that has gone with the process that kept it."""

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any) -> None:
            raise RuntimeError("connection was closed")

        return fail


def test_without_a_store_a_rank_tells_what_it_has_seen_itself() -> None:
    there = FailureAgreement(Gone(), "test", 0, 3, 1.0)
    there.leave(FailureReport(3, {2: DISCONNECTED}))
    assert there.cause() == {2: DISCONNECTED}
    there.wait([2])
    with pytest.raises(PeerLostError, match="the store of the process group cannot be reached"):
        there.decide()


def test_people_are_told_by_the_numbers_that_the_world_began_with() -> None:
    told = describe_failures({0: DISCONNECTED, 1: STALLED, 2: "NaN"}, (0, 3, 7), 60.0)
    assert told == (
        "rank 0 failed: its connection was closed; rank 3 has not answered for 60 seconds; rank 7 has stopped: NaN"
    )
