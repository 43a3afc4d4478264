"""The contract: all replicas make the same calls in the same order, with the same structures and shapes."""

import re
import sys
import sysconfig
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import FrameType

import torch

from ..runtime.peer_loss import Exchanges
from ..transports import PeerLostError, Post, Transport, Unreachable

DIGEST = 16  # bytes
HEADER = 128  # bytes: the digest of a call, then its name and line as text
LIBRARIES = (str(Path(__file__).parent.parent), str(Path(torch.__file__).parent), sysconfig.get_path("stdlib"))


class ContractError(RuntimeError):
    """Replicas made different calls, or one of them has stopped."""


class Contract:
    """Compares every call of this replica with those of the others before it is made."""

    def __init__(self, transport: Transport, checked: bool, noun: str = "replica", of: str = "") -> None:
        self.transport, self.checked = transport, checked
        self.noun, self.of = noun, of  # for messages: what a rank of the transport is, and of which replica
        self.calls = 0
        self._last = [""] * transport.size  # the last call that was received from each replica
        self._broken: BaseException | None = None
        self._exchanges = Exchanges(transport, "raise", None)

    def check(self, call: str, detail: str = "", site: str | None = None) -> None:
        """Compare this call with those of the other replicas; if they differ, ContractError on all of them."""
        if self._broken is not None:
            raise RuntimeError("the replicas are out of step since an earlier error; restart") from self._broken
        self.calls += 1
        site = site or called_at()
        self.transport.set_operation(_at(call, site))
        if self.compares:
            with self.guarded():
                self._compare(call, detail, site)

    @property
    def compares(self) -> bool:
        """Whether calls are compared. If so, every call also waits for all replicas."""
        return self.checked and self.transport.size > 1

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Exchange within a call that was compared: a failed rank is a ContractError that shows both sides' calls."""
        try:
            yield
        except Unreachable as error:
            self._fail(self._cause(error))
        except PeerLostError as error:
            self._fail(str(error))
        except ContractError as error:
            self._broken = error
            raise

    def abort(self, problem: BaseException) -> None:
        """Stop because of this error, and notify the replicas that wait for this one."""
        if self._broken is None:
            self._broken = problem
            self.transport.abort(_at(f"{type(problem).__name__}: {problem}".rstrip(": "), raised_at(problem)))

    def _compare(self, call: str, detail: str, site: str) -> None:
        transport, described = self.transport, f"{call} {detail}".rstrip()
        digest = sha256(f"{self.calls} {described}".encode()).digest()[:DIGEST]
        text = _at(call, site).encode()[: HEADER - DIGEST].ljust(HEADER - DIGEST)
        mine = torch.frombuffer(bytearray(digest + text), dtype=torch.uint8).to(transport.device)
        others = [r for r in range(transport.size) if r != transport.rank]
        received = transport.deliver_counted(Post(dict.fromkeys(others, mine), dict.fromkeys(others, HEADER), {}))
        headers = {r: bytes(header.tolist()) for r, header in received.items()} | {transport.rank: digest + text}
        if any(header[:DIGEST] != digest for header in headers.values()):
            raise ContractError(self._mismatch(_at(described, site)))
        for r, header in headers.items():
            self._last[r] = header[DIGEST:].decode(errors="ignore").strip()

    def _mismatch(self, mine: str) -> str:
        """A message that lists every replica's call. All replicas see the mismatch, so all of them gather."""
        calls = [text.decode().strip() for text in self.transport.gather(mine.encode())]
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for rank, text in enumerate(calls):
            groups[text].append(rank)
        lines = "".join(f"\n  {self._named(ranks)} {text}" for text, ranks in groups.items())
        return f"the {self.noun}s{self.of} are out of step at call number {self.calls}:{lines}"

    def _cause(self, error: Unreachable) -> str:
        """Which rank failed first, as agreed by all survivors."""
        try:
            self._exchanges.recover(error, self.calls)
        except PeerLostError as found:
            return str(found).partition(". This is rank")[0]
        return str(error)

    def _fail(self, reason: str) -> None:
        noun, here = self.noun, self.transport.rank
        last = [(r, text) for r, text in enumerate(self._last) if text and f"rank {r} " in reason]
        last_calls = [f" ({noun} {r}'s last call was {text})" for r, text in last]
        if self.of:  # ranks are numbered from 0 in each replica
            who, colon, cause = reason.partition(": ")
            reason = re.sub(r"\brank (\d+)", rf"{noun} \1{self.of}", who) + colon + cause
        problem = f"{reason}{''.join(last_calls[:1])}, while {noun} {here}{self.of} calls {self.transport.operation}"
        self._broken = ContractError(problem)
        raise self._broken from None

    def _named(self, ranks: list[int]) -> str:
        *most, last = map(str, ranks)
        if most:
            return f"{self.noun}s {', '.join(most)} and {last}{self.of} call"
        return f"{self.noun} {last}{self.of} calls"


def called_at() -> str:
    """The line of user code that is running, as "file:line"; "" without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def raised_at(error: BaseException) -> str:
    """The last line of user code in an error's traceback, as "file:line"; "" without one."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    users = [f"{Path(name).name}:{line}" for name, line in lines if _is_user_code(name)]
    return users[-1] if users else ""


def _is_user_code(filename: str) -> bool:
    return not filename.startswith((*LIBRARIES, "<"))


def _at(call: str, site: str) -> str:
    return f"{call} at {site}" if site else call
