"""When a rank has died or stalled, the others find out who is left, over the store that all ranks once met at.

Each rank that notices something leaves a note: whom it cannot reach, and where it is in the order of talks. Then it
hangs up, so that its own neighbors notice, and so on through the graph. A rank that leaves no note is lost.
"""

import json
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

LEAVE = 20.0  # seconds to let others read the notes in, before this process may end, and the store with it
POLL = 0.05
GONE, STALLED = "gone", "stalled"
# Seconds for a note of a rank that hung up, or that did not answer in time: it may have waited for another one itself.
GRACE = {GONE: 1.5, STALLED: 3.0}


class PeerLostError(RuntimeError):
    """Ranks have died, stalled or stopped with an error, and the others cannot go on."""


class Store(Protocol):
    """What is used of torch's."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


@dataclass(frozen=True)
class Note:
    """What a rank has to say about a failure."""

    resume: int = 0  # the number of the talk that it could hold next
    blamed: dict[int, str] = field(default_factory=dict)  # GONE or STALLED, by rank
    left: str = ""  # why it stopped by itself, if it did


@dataclass(frozen=True)
class Decision:
    survivors: tuple[int, ...]
    lost: dict[int, str]  # why, by rank
    resume: int  # the number of the talk that the survivors hold next


class FailureAgreement:
    """The notes of one failure. Ranks are those of the group that failed."""

    def __init__(self, store: Store, topic: str, rank: int, size: int, timeout: float) -> None:
        self.store, self.topic, self.rank, self.size = store, topic, rank, size
        self.timeout = timeout  # seconds within which a rank that is alive notices
        self.mine = Note()

    def leave(self, note: Note) -> None:
        self.mine = note
        with suppress(RuntimeError):  # whoever goes on to read finds out
            self.store.set(f"{self.topic}/{self.rank}", json.dumps(asdict(note)))

    def notes(self) -> dict[int, Note]:
        there = [rank for rank in range(self.size) if self.store.check([f"{self.topic}/{rank}"])]
        return {rank: _read(self.store.get(f"{self.topic}/{rank}")) for rank in there}

    def cause(self) -> dict[int, str]:
        """Who was lost first, and why: of those who are blamed, the ones without a note, or with one that says so."""
        found: dict[int, str] = {}
        try:
            for waited, notes in self._watch():
                found = _lost(notes)
                # If all have left a note and none is lost, a connection broke, or who stalled has come back in time.
                if len(notes) == self.size or any(waited >= GRACE.get(why, 0) for why in found.values()):
                    break
            self.done()
        except RuntimeError:  # the store is gone: with it, what others have seen
            found = found or self.mine.blamed
        return found

    def decide(self) -> Decision:
        """Who goes on: the same answer for all. Waits for the notes of all ranks that nobody blames."""
        try:
            return self._decided()
        except RuntimeError as error:
            raise PeerLostError(
                "the store that all ranks once met at cannot be reached: it is gone with rank 0, or with the launcher "
                f"that kept it ({error})"
            ) from None

    def _decided(self) -> Decision:
        notes: dict[int, Note] = {}
        for waited, notes in self._watch():
            lost = _lost(notes)
            sure = {rank for rank, why in lost.items() if waited >= GRACE.get(why, 0)}
            if len(notes.keys() | sure) == self.size:
                break
        absent = {r: STALLED for r in range(self.size) if r not in notes}
        lost = absent | _lost(notes)
        survivors = [r for r in range(self.size) if r not in lost]
        resume = max((notes[r].resume for r in survivors), default=0)
        mine = json.dumps({"survivors": survivors, "lost": lost, "resume": resume})
        agreed = json.loads(self.store.compare_set(f"{self.topic}/decision", "", mine))
        self.done()
        lost = {int(r): why for r, why in agreed["lost"].items()}
        return Decision(tuple(agreed["survivors"]), lost, agreed["resume"])

    def wait(self, lost: Collection[int]) -> None:
        """Let the others read: with this process, the store may end."""
        end = time.monotonic() + min(LEAVE, self.timeout)
        others = [r for r in range(self.size) if r not in {self.rank, *lost}]
        with suppress(RuntimeError):
            while time.monotonic() < end and not all(self.store.check([f"{self.topic}/read/{r}"]) for r in others):
                time.sleep(POLL)

    def done(self) -> None:
        """Tell the others that this rank has read what it has to know."""
        self.store.set(f"{self.topic}/read/{self.rank}", "")

    def _watch(self) -> Iterator[tuple[float, dict[int, Note]]]:
        start = time.monotonic()
        while (waited := time.monotonic() - start) < self.timeout + GRACE[STALLED]:
            yield waited, self.notes()
            time.sleep(POLL)


def told_of(lost: dict[int, str], names: tuple[int, ...], timeout: float) -> str:
    """For people: who was lost, by the ranks that the world began with."""
    how = {GONE: "is gone: its connection was closed", STALLED: f"has not answered for {timeout:g} seconds"}
    said = (f"rank {names[rank]} {how.get(why, f'has stopped: {why}')}" for rank, why in sorted(lost.items()))
    return "; ".join(said) or "the connection to other ranks was lost"


def _lost(notes: dict[int, Note]) -> dict[int, str]:
    """Who is blamed and has left no note, or has left for good. Being gone outweighs not to answer."""
    blamed: dict[int, str] = {}
    for note in notes.values():
        for rank, why in note.blamed.items():
            if rank not in notes and blamed.get(rank) != GONE:
                blamed[rank] = why
    return blamed | {rank: note.left for rank, note in notes.items() if note.left}


def _read(data: bytes) -> Note:
    said: dict[str, Any] = json.loads(data)
    return Note(said["resume"], {int(rank): why for rank, why in said["blamed"].items()}, said["left"])
