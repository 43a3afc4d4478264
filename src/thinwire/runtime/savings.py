"""Warns once if a method saves no bytes."""

import warnings

from ..core import Replica, Strategy
from ..methods import notation_of
from ..transports import Meter


class Savings:
    """Compares the link bytes with those of a plain all-reduce.

    It does so for each period of the strategy: one step, or the steps in which everything is exchanged once.
    """

    def __init__(self, strategy: Strategy, replica: Replica, meter: Meter) -> None:
        self.meter = meter
        self._warned, self._period, self._warm_up = not strategy.saves, strategy.period, strategy.warm_up
        self._slack, self._settling_steps = strategy.slack(replica), strategy.settles_after(replica)
        self.begin()

    def begin(self) -> None:
        """Start to compare from the meter's current counts."""
        self._since = self.meter.steps
        self._before = self.meter.link_bytes, self.meter.dense_link_bytes

    def end_step(self, strategy: Strategy, ranks: int) -> None:
        steps = self.meter.steps - self._warm_up
        if steps > 0 and steps % self._period:
            return
        link, dense = self.meter.link_bytes - self._before[0], self.meter.dense_link_bytes - self._before[1]
        full_period = self.meter.steps - self._since == self._period  # false if counting began within the period
        self.begin()
        settling = steps <= self._settling_steps
        if self._warned or not full_period or not dense or link < dense + self._slack or settling:
            return
        self._warned = True
        period = f"{self._period} steps" if self._period > 1 else "a step"
        warnings.warn(
            f"{notation_of(strategy)} put {link:,} bytes on this node's link in {period}, where a plain all-reduce "
            f"puts {dense:,}: on {ranks} ranks it saves nothing",
            stacklevel=4,
        )
