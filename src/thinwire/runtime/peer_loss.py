"""Runs the exchanges of one rank in the order that all ranks share, and handles failed ranks."""

import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from ..core import Rounds
from ..transports import (
    FailureAgreement,
    FailureReport,
    Meter,
    PeerLostError,
    ProcessGroupTransport,
    RegroupPlan,
    Transport,
    Unreachable,
    describe_failures,
)

ON_PEER_LOSS = ("raise", "continue")


class Exchanges:
    """Runs exchanges and numbers them, the same on all ranks.

    After a failure, the survivors continue at the highest number that any of them had reached.
    """

    def __init__(self, transport: Transport, on_peer_loss: str, regroup: Callable[[RegroupPlan], None] | None) -> None:
        self.transport, self.on_peer_loss = transport, on_peer_loss
        self.regroup = regroup  # continues with the survivors; None if the strategy needs all ranks
        self.count = 0  # exchanges that were started
        self.behind = 0  # exchanges to skip: since a failure, the other survivors are past them
        self.broken: BaseException | None = None  # the error after which no exchange may run

    @property
    def rank(self) -> int:
        """This rank's original number."""
        return self.transport.original_ranks[self.transport.rank]

    def run(self, make: Callable[[], Rounds], meter: Meter) -> Any:
        """The result of an exchange, which is made again if ranks fail; None if the other ranks are past it."""
        self.check()
        self.count += 1
        while not self.behind:
            try:
                return self.transport.run(make(), meter)
            except Unreachable as error:
                self.recover(error, self.count)
            except BaseException as error:  # other ranks may wait for what was not sent
                self.broken = error
                raise
        self.behind -= 1
        return None

    def may_launch(self) -> bool:
        """Count an exchange that is about to start in the background; false if the other ranks are past it."""
        self.check()
        self.count += 1
        skip, self.behind = self.behind > 0, max(0, self.behind - 1)
        return not skip

    def wait(self, in_flight: Callable[[], Any]) -> Any:
        """The result of an exchange in the background; None if it was dropped because ranks failed meanwhile."""
        self.check()
        try:
            return in_flight()
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
        """Continue without the failed ranks, at the exchange with this number or a later one; or raise.

        The survivors may have been at different exchanges, a few apart.
        """
        assert isinstance(self.transport, ProcessGroupTransport), "other transports report stopped ranks themselves"
        own = resume
        try:
            while True:
                _clear_frames(error)
                agreement = self.transport.disconnect(FailureReport(resume, error.ranks))
                if self.on_peer_loss == "raise" or self.regroup is None:
                    self._raise(agreement)
                plan = agreement.decide()
                if self.transport.rank not in plan.survivors:
                    raise PeerLostError(f"the other ranks have continued without this rank, {self.rank}") from None
                try:
                    self.regroup(plan)
                    break
                except Unreachable as another:
                    error, resume = another, plan.resume
        except BaseException as problem:
            self.broken = problem
            raise
        self.behind = plan.resume - own

    def abort(self, problem: BaseException) -> None:
        """Stop this rank, and report the reason to ranks that wait for it."""
        self.check()
        self.broken = problem
        self.transport.abort(str(problem))

    def _raise(self, agreement: FailureAgreement) -> NoReturn:
        failed = agreement.cause()
        agreement.wait(failed)
        transport = self.transport
        advice = "" if self.regroup is None else " (attach(..., on_peer_loss='continue') would continue without it)"
        raise PeerLostError(
            f"{describe_failures(failed, transport.original_ranks, transport.timeout)}. "
            f"This is rank {self.rank}, after step {transport.meter.steps}{advice}"
        ) from None


def _clear_frames(error: BaseException) -> None:
    """Release what the failed frames reference: a group's connections stay open as long as anything references it."""
    traceback.clear_frames(error.__traceback__)
    error.__traceback__ = None
