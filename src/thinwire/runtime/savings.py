"""Says once if a method does not save anything."""

import warnings

from ..core import Replica, Strategy
from ..methods import notation_of
from ..transports import Meter


class Savings:
    """Compares what the link carried with what a plain all-reduce would have put on it.

    Step by step; or over all steps after which everything has been said once.
    """

    def __init__(self, strategy: Strategy, replica: Replica, meter: Meter) -> None:
        self.meter = meter
        self._told, self._period, self._warm_up = not strategy.saves, strategy.period, strategy.warm_up
        self._slack, self._warm_steps = strategy.slack(replica), strategy.settles_after(replica)
        self.begin()

    def begin(self) -> None:
        """Look at what comes from now on."""
        self._since = self.meter.steps
        self._before = self.meter.link_bytes, self.meter.dense_link_bytes

    def end_step(self, strategy: Strategy, ranks: int) -> None:
        steps = self.meter.steps - self._warm_up
        if steps > 0 and steps % self._period:
            return
        link, dense = self.meter.link_bytes - self._before[0], self.meter.dense_link_bytes - self._before[1]
        whole = self.meter.steps - self._since == self._period  # not if it began in the midst of it
        self.begin()
        if self._told or not whole or not dense or link < dense + self._slack or steps <= self._warm_steps:
            return
        self._told = True
        among = f"{self._period} steps" if self._period > 1 else "a step"
        warnings.warn(
            f"{notation_of(strategy)} put {link:,} bytes on this node's link in {among}, where a plain all-reduce puts "
            f"{dense:,}: on {ranks} ranks it saves nothing",
            stacklevel=4,
        )
