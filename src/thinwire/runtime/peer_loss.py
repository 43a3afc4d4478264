"""The talks of one rank, in the order that all ranks share, and what becomes of it when some of them are lost."""

import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from ..core import Rounds
from ..transports import (
    Decision,
    FailureAgreement,
    Meter,
    Note,
    PeerLostError,
    ProcessGroupTransport,
    Transport,
    Unreachable,
    told_of,
)

ON_PEER_LOSS = ("raise", "continue")


class Exchanges:
    """Holds talks by their number: when ranks are lost, those who are left meet again at the furthest one."""

    def __init__(self, transport: Transport, on_peer_loss: str, go_on: Callable[[Decision], None] | None) -> None:
        self.transport, self.on_peer_loss = transport, on_peer_loss
        self.go_on = go_on  # makes what is remembered fit those who are left; None if there is no way to
        self.count = 0  # of those that were begun
        self.behind = 0  # talks that the others have held, or given up, since some were lost
        self.broken: BaseException | None = None

    @property
    def rank(self) -> int:
        """This rank, as it was when all were here."""
        return self.transport.names[self.transport.rank]

    def held(self, make: Callable[[], Rounds], meter: Meter) -> Any:
        """What came of a talk, which is made anew if ranks are lost; None if the others are past it."""
        self.check()
        self.count += 1
        while not self.behind:
            try:
                return self.transport.run(make(), meter)
            except Unreachable as error:
                self.recover(error, self.count)
            except BaseException as error:  # the other ranks may wait for what was not said
                self.broken = error
                raise
        self.behind -= 1
        return None

    def may_launch(self) -> bool:
        """Count a talk that is about to begin and goes on meanwhile; false if the others are past it."""
        self.check()
        self.count += 1
        past, self.behind = self.behind > 0, max(0, self.behind - 1)
        return not past

    def landed(self, wait: Callable[[], Any]) -> Any:
        """What came of a talk that was launched; None if it was given up, as ranks were lost meanwhile."""
        self.check()
        try:
            return wait()
        except Unreachable as error:
            self.recover(error, self.count + 1)
            return None
        except BaseException as error:
            self.broken = error
            raise

    def check(self) -> None:
        if self.broken is not None:
            raise RuntimeError("the ranks are out of step since an earlier error; restart") from self.broken

    def recover(self, error: Unreachable, resume: int) -> None:
        """Go on without the ranks that are lost, from the talk of this number on at the earliest; or say so, and stop.

        Those who are left may have been at different talks, a few apart.
        """
        assert isinstance(self.transport, ProcessGroupTransport), "others tell at once who has stopped, and why"
        mine = resume
        try:
            while True:
                _forget_frames(error)
                meeting = self.transport.hang_up(Note(resume, error.blamed))
                if self.on_peer_loss == "raise" or self.go_on is None:
                    self._stop(meeting)
                decision = meeting.decide()
                if self.transport.rank not in decision.survivors:
                    raise PeerLostError(f"the others have gone on without this rank, {self.rank}") from None
                try:
                    self.go_on(decision)
                    break
                except Unreachable as another:
                    error, resume = another, decision.resume
        except BaseException as problem:
            self.broken = problem
            raise
        self.behind = decision.resume - mine

    def leave(self, problem: BaseException) -> None:
        """Stop by oneself, and let the others know why."""
        self.check()
        self.broken = problem
        self.transport.leave(str(problem))

    def _stop(self, meeting: FailureAgreement) -> NoReturn:
        lost = meeting.cause()
        meeting.wait(lost)
        transport = self.transport
        advice = "" if self.go_on is None else " (attach(..., on_peer_loss='continue') would go on without)"
        raise PeerLostError(
            f"{told_of(lost, transport.names, transport.timeout)}. "
            f"This is rank {self.rank}, after step {transport.meter.steps}{advice}"
        ) from None


def _forget_frames(error: BaseException) -> None:
    """Let go of what failed: a group's connections are open for as long as anything holds it."""
    traceback.clear_frames(error.__traceback__)
    error.__traceback__ = None
