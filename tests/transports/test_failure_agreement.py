"""Which ranks failed, and which continue: agreed from the reports of the ranks that noticed."""

import threading
import time
from typing import Any

import pytest
import torch.distributed as dist

from thinwire import PeerLostError
from thinwire.transports import failure_agreement
from thinwire.transports.failure_agreement import (
    DISCONNECTED,
    STALLED,
    FailureAgreement,
    FailureReport,
    RegroupPlan,
    describe_failures,
)


@pytest.fixture(autouse=True)
def short_grace_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_agreement, "GRACE", {DISCONNECTED: 0.1, STALLED: 0.3})
    monkeypatch.setattr(failure_agreement, "POLL", 0.01)


def results_of(
    reports: dict[int, FailureReport], size: int, method: str, timeout: float = 2.0, delay: float = 0.0
) -> dict[int, Any]:
    """The result of a FailureAgreement method on each rank that reports; the last rank reports after a delay."""
    store, results = dist.HashStore(), {}

    def report(rank: int, wait: float) -> None:
        agreement = FailureAgreement(store, "test", rank, size, timeout)
        threading.Event().wait(wait)
        agreement.publish(reports[rank])
        try:
            results[rank] = getattr(agreement, method)()
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=report, args=(r, delay * (r == max(reports)))) for r in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_a_rank_without_a_report_has_failed_and_ranks_that_waited_for_it_have_not() -> None:
    # On a ring of 5, rank 2 dies. 1 and 3 notice; when they disconnect, 0 and 4 do.
    reports = {
        1: FailureReport(7, {2: DISCONNECTED}),
        3: FailureReport(7, {2: DISCONNECTED}),
        0: FailureReport(8, {1: DISCONNECTED}),
        4: FailureReport(8, {3: DISCONNECTED}),
    }
    assert results_of(reports, 5, "cause") == {rank: {2: DISCONNECTED} for rank in reports}
    plans = results_of(reports, 5, "decide")
    assert plans == dict.fromkeys(reports, RegroupPlan((0, 1, 3, 4), {2: DISCONNECTED}, 8))


def test_a_rank_that_only_waited_may_report_within_the_grace_period() -> None:
    reports = {0: FailureReport(3, {1: STALLED}), 1: FailureReport(3, {2: STALLED})}
    assert results_of(reports, 3, "cause", delay=0.15) == {0: {2: STALLED}, 1: {2: STALLED}}
    assert results_of(reports, 3, "decide", delay=0.15)[0].survivors == (0, 1)


def test_a_rank_that_no_report_names_is_waited_for() -> None:
    reports = {0: FailureReport(3, {1: DISCONNECTED}), 2: FailureReport(4, {0: DISCONNECTED})}
    plans = results_of(reports, 3, "decide", delay=0.8)
    assert plans == dict.fromkeys(reports, RegroupPlan((0, 2), {1: DISCONNECTED}, 4))


def test_a_rank_that_does_not_report_within_the_timeout_has_failed() -> None:
    plans = results_of({0: FailureReport(3, {1: DISCONNECTED})}, 3, "decide", timeout=0.5)
    assert plans == {0: RegroupPlan((0,), {1: DISCONNECTED, 2: STALLED}, 3)}


def test_a_broken_connection_between_live_ranks_is_detected_at_once() -> None:
    reports = {
        0: FailureReport(3, {1: DISCONNECTED}),
        1: FailureReport(3, {0: DISCONNECTED}),
        2: FailureReport(3, {1: STALLED}),
    }
    start = time.monotonic()
    assert results_of(reports, 3, "cause", timeout=10.0) == {rank: {} for rank in reports}
    assert time.monotonic() - start < 5


def test_a_rank_that_stops_by_itself_reports_the_reason() -> None:
    reports = {
        0: FailureReport(3, {1: DISCONNECTED}),
        1: FailureReport(stopped="NaN"),
        2: FailureReport(3, {1: DISCONNECTED}),
    }
    cause = results_of(reports, 3, "cause")
    assert cause[0] == cause[2] == {1: "NaN"}
    plans = results_of(reports, 3, "decide")
    assert plans[0] == plans[2] == RegroupPlan((0, 2), {1: "NaN"}, 3)


def test_the_first_plan_is_the_plan_of_all_ranks() -> None:
    store = dist.HashStore()
    first, second = (FailureAgreement(store, "test", rank, 3, 0.4) for rank in (0, 1))
    first.publish(FailureReport(5, {1: DISCONNECTED, 2: DISCONNECTED}))
    alone = first.decide()
    second.publish(FailureReport(9, {}))  # it was taken for failed, and answers again
    assert second.decide() == alone == RegroupPlan((0,), {1: DISCONNECTED, 2: DISCONNECTED}, 5)


class UnreachableStore:
    """A store whose process has ended."""

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any) -> None:
            raise RuntimeError("connection was closed")

        return fail


def test_without_a_store_a_rank_reports_what_it_has_noticed_itself() -> None:
    agreement = FailureAgreement(UnreachableStore(), "test", 0, 3, 1.0)
    agreement.publish(FailureReport(3, {2: DISCONNECTED}))
    assert agreement.cause() == {2: DISCONNECTED}
    agreement.wait([2])
    with pytest.raises(PeerLostError, match="the store of the process group cannot be reached"):
        agreement.decide()


def test_failures_are_described_with_the_original_ranks() -> None:
    text = describe_failures({0: DISCONNECTED, 1: STALLED, 2: "NaN"}, (0, 3, 7), 60.0)
    assert text == (
        "rank 0 failed: its connection was closed; rank 3 has not answered for 60 seconds; rank 7 has stopped: NaN"
    )
