"""After a rank failed, the others agree over the process group's store on which ranks failed and how to continue.

Each rank that notices a failure publishes a report: which ranks it could not reach, and the number of its next
exchange. Then it closes its connections, so that its own neighbors notice too, and so on through the graph. A rank that
others report and that publishes no report itself has failed.
"""

import json
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

READ_TIMEOUT = 20.0  # seconds to let others read the reports before this process, and with it the store, may end
POLL = 0.05  # seconds between two reads of the store
DISCONNECTED, STALLED = "disconnected", "stalled"
# Seconds to wait for the report of a rank that closed its connection or did not answer in time: it may itself have
# waited for the rank that failed.
GRACE = {DISCONNECTED: 1.5, STALLED: 3.0}


class PeerLostError(RuntimeError):
    """Ranks have died, stalled or stopped with an error, and the others cannot continue."""


class Store(Protocol):
    """The methods of `torch.distributed.Store` that are used here."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


@dataclass(frozen=True)
class FailureReport:
    """What one rank knows about a failure."""

    resume: int = 0  # the number of the next exchange that it could run
    unreachable: dict[int, str] = field(default_factory=dict)  # DISCONNECTED or STALLED, by rank
    stopped: str = ""  # why it stopped by itself, if it did


@dataclass(frozen=True)
class RegroupPlan:
    """How the survivors continue: the same on all of them."""

    survivors: tuple[int, ...]
    failed: dict[int, str]  # why, by rank
    resume: int  # the number of the exchange that the survivors run next


class FailureAgreement:
    """The reports about one failure, in a store. Ranks are those of the group in which it happened."""

    def __init__(self, store: Store, topic: str, rank: int, size: int, timeout: float) -> None:
        self.store, self.topic, self.rank, self.size = store, topic, rank, size
        self.timeout = timeout  # seconds within which a live rank notices the failure
        self.report = FailureReport()

    def publish(self, report: FailureReport) -> None:
        self.report = report
        with suppress(RuntimeError):  # without a store, the next read raises
            self.store.set(f"{self.topic}/{self.rank}", json.dumps(asdict(report)))

    def reports(self) -> dict[int, FailureReport]:
        published = [rank for rank in range(self.size) if self.store.check([f"{self.topic}/{rank}"])]
        return {rank: _parsed(self.store.get(f"{self.topic}/{rank}")) for rank in published}

    def cause(self) -> dict[int, str]:
        """The ranks that failed first, and why: those reported that published no report, or that stopped themselves."""
        failed: dict[int, str] = {}
        try:
            for waited, reports in self._poll():
                failed = _failed(reports)
                # If all ranks have reported and none failed, a connection broke, or a stalled rank answered again.
                if len(reports) == self.size or any(waited >= GRACE.get(why, 0) for why in failed.values()):
                    break
            self.confirm()
        except RuntimeError:  # the store is unreachable, and with it the reports of other ranks
            failed = failed or self.report.unreachable
        return failed

    def decide(self) -> RegroupPlan:
        """The plan for the survivors, the same on all ranks. Waits for a report of every rank that has not failed."""
        try:
            return self._decide()
        except RuntimeError as error:
            raise PeerLostError(
                "the store of the process group cannot be reached: it ended with rank 0, or with the launcher that "
                f"served it ({error})"
            ) from None

    def _decide(self) -> RegroupPlan:
        reports: dict[int, FailureReport] = {}
        for waited, reports in self._poll():
            failed = _failed(reports)
            certain = {rank for rank, why in failed.items() if waited >= GRACE.get(why, 0)}
            if len(reports.keys() | certain) == self.size:
                break
        silent = {r: STALLED for r in range(self.size) if r not in reports}
        failed = silent | _failed(reports)
        survivors = [r for r in range(self.size) if r not in failed]
        resume = max((reports[r].resume for r in survivors), default=0)
        proposed = json.dumps({"survivors": survivors, "failed": failed, "resume": resume})
        # The first rank to write determines the plan; all others read what it wrote.
        plan = json.loads(self.store.compare_set(f"{self.topic}/plan", "", proposed))
        self.confirm()
        return RegroupPlan(tuple(plan["survivors"]), {int(r): why for r, why in plan["failed"].items()}, plan["resume"])

    def wait(self, failed: Collection[int]) -> None:
        """Wait until the other live ranks have read the reports: the store may end with this process."""
        end = time.monotonic() + min(READ_TIMEOUT, self.timeout)
        others = [r for r in range(self.size) if r not in {self.rank, *failed}]
        with suppress(RuntimeError):
            while time.monotonic() < end and not all(self.store.check([f"{self.topic}/read/{r}"]) for r in others):
                time.sleep(POLL)

    def confirm(self) -> None:
        """Mark that this rank has read all it needs from the store."""
        self.store.set(f"{self.topic}/read/{self.rank}", "")

    def _poll(self) -> Iterator[tuple[float, dict[int, FailureReport]]]:
        start = time.monotonic()
        while (waited := time.monotonic() - start) < self.timeout + GRACE[STALLED]:
            yield waited, self.reports()
            time.sleep(POLL)


def describe_failures(failed: dict[int, str], original_ranks: tuple[int, ...], timeout: float) -> str:
    """Text for an error or warning, with the ranks' original numbers."""
    texts = {
        DISCONNECTED: "failed: its connection was closed",
        STALLED: f"has not answered for {timeout:g} seconds",
    }
    described = (
        f"rank {original_ranks[rank]} {texts.get(why, f'has stopped: {why}')}" for rank, why in sorted(failed.items())
    )
    return "; ".join(described) or "the connection to other ranks was lost"


def _failed(reports: dict[int, FailureReport]) -> dict[int, str]:
    """Ranks that are reported unreachable and published no report, and those that stopped; with the reason.

    If both reasons are reported for a rank, DISCONNECTED counts.
    """
    unreachable: dict[int, str] = {}
    for report in reports.values():
        for rank, why in report.unreachable.items():
            if rank not in reports and unreachable.get(rank) != DISCONNECTED:
                unreachable[rank] = why
    return unreachable | {rank: report.stopped for rank, report in reports.items() if report.stopped}


def _parsed(data: bytes) -> FailureReport:
    fields: dict[str, Any] = json.loads(data)
    unreachable = {int(rank): why for rank, why in fields["unreachable"].items()}
    return FailureReport(fields["resume"], unreachable, fields["stopped"])
