"""What replicas do together, they do in the same order, with the same structure and shapes: this is compared."""

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
HEADER = 128  # bytes, of which the rest tells what a replica calls, and from where
INSIDE = (str(Path(__file__).parent.parent), str(Path(torch.__file__).parent), sysconfig.get_path("stdlib"))


class ContractError(RuntimeError):
    """Replicas do not do the same things in the same order, or one of them has stopped."""


class Contract:
    """Tells the others what this replica is about to do, and hears it from them."""

    def __init__(self, transport: Transport, checked: bool, noun: str = "replica", of: str = "") -> None:
        self.transport, self.checked = transport, checked
        self.noun, self.of = noun, of  # what those who call are, and of what
        self.calls = 0
        self._last = [""] * transport.size  # what each replica was last heard to call
        self._broken: BaseException | None = None
        self._talks = Exchanges(transport, "raise", None)

    def check(self, what: str, detail: str = "", site: str | None = None) -> None:
        """All replicas are about to do this; ContractError on all of them if it is not so."""
        if self._broken is not None:
            raise RuntimeError("the replicas are out of step since an earlier error; restart") from self._broken
        self.calls += 1
        site = site or called_at()
        self.transport.set_operation(_at(what, site))
        if self.compares:
            with self.held():
                self._compare(what, detail, site)

    @property
    def compares(self) -> bool:
        """Whether calls are compared, so that none is made before all others are about to make it."""
        return self.checked and self.transport.size > 1

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is exchanged for a call that was compared: who cannot be reached is told with both calls."""
        try:
            yield
        except Unreachable as error:
            self._lose(self._cause(error))
        except PeerLostError as error:
            self._lose(str(error))
        except ContractError as error:
            self._broken = error
            raise

    def leave(self, problem: BaseException) -> None:
        """Stop for this reason, and let those know who wait for this replica."""
        if self._broken is None:
            self._broken = problem
            self.transport.abort(_at(f"{type(problem).__name__}: {problem}".rstrip(": "), raised_at(problem)))

    def _compare(self, what: str, detail: str, site: str) -> None:
        transport, meant = self.transport, f"{what} {detail}".rstrip()
        digest = sha256(f"{self.calls} {meant}".encode()).digest()[:DIGEST]
        text = _at(what, site).encode()[: HEADER - DIGEST].ljust(HEADER - DIGEST)
        mine = torch.frombuffer(bytearray(digest + text), dtype=torch.uint8).to(transport.device)
        others = [r for r in range(transport.size) if r != transport.rank]
        heard = transport.deliver_counted(Post(dict.fromkeys(others, mine), dict.fromkeys(others, HEADER), {}))
        headers = {r: bytes(header.tolist()) for r, header in heard.items()} | {transport.rank: digest + text}
        if any(header[:DIGEST] != digest for header in headers.values()):
            raise ContractError(self._told(_at(meant, site)))
        for r, header in headers.items():
            self._last[r] = header[DIGEST:].decode(errors="ignore").strip()

    def _told(self, mine: str) -> str:
        """Who does what, as all replicas tell it: all of them see that they differ, so all of them ask."""
        whole = [told.decode().strip() for told in self.transport.gather(mine.encode())]
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for rank, text in enumerate(whole):
            groups[text].append(rank)
        lines = "".join(f"\n  {self._named(ranks)} {text}" for text, ranks in groups.items())
        return f"the {self.noun}s{self.of} are out of step, at the call number {self.calls} of each:{lines}"

    def _cause(self, error: Unreachable) -> str:
        """Who was lost first, as all who are left agree."""
        try:
            self._talks.recover(error, self.calls)
        except PeerLostError as found:
            return str(found).partition(". This is rank")[0]
        return str(error)

    def _lose(self, why: str) -> None:
        noun, here = self.noun, self.transport.rank
        last = [(r, text) for r, text in enumerate(self._last) if text and f"rank {r} " in why]
        before = [f" ({noun} {r}'s last call was {text})" for r, text in last]
        if self.of:  # ranks are numbered from 0 in each replica
            who, cause, reason = why.partition(": ")
            why = re.sub(r"\brank (\d+)", rf"{noun} \1{self.of}", who) + cause + reason
        problem = f"{why}{''.join(before[:1])}, while {noun} {here}{self.of} calls {self.transport.operation}"
        self._broken = ContractError(problem)
        raise self._broken from None

    def _named(self, ranks: list[int]) -> str:
        *most, last = map(str, ranks)
        if most:
            return f"{self.noun}s {', '.join(most)} and {last}{self.of} call"
        return f"{self.noun} {last}{self.of} calls"


def called_at() -> str:
    """The line of the user's code that is being run; nothing if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def raised_at(error: BaseException) -> str:
    """The line of the user's code that an error came from; nothing if it came from none."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    users = [f"{Path(name).name}:{line}" for name, line in lines if _is_users(name)]
    return users[-1] if users else ""


def _is_users(filename: str) -> bool:
    return not filename.startswith((*INSIDE, "<"))


def _at(what: str, where: str) -> str:
    return f"{what} at {where}" if where else what
