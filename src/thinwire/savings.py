"""Says once if a method does not save anything."""

import warnings

from .core import Replica, Strategy
from .methods import notation_of
from .reducers import After, Average, Momentum
from .strategies import DataParallel, Neighbours, overlap_of
from .transports import Meter


class Savings:
    """Compares, step by step, what the link carried with what a plain all-reduce would have put on it."""

    def __init__(self, strategy: Strategy, replica: Replica, meter: Meter) -> None:
        self.meter = meter
        self._told = isinstance(strategy, Neighbours) and strategy.lossless  # it is not meant to save anything
        units = strategy.units(replica) if isinstance(strategy, DataParallel) else ()
        dense = all(unit.reducer == Average() or isinstance(unit.reducer, After) for unit in units)
        # What is meant to be dense, at least to warm up, may differ by the rounding of shards and by a bit a parameter.
        self._slack = 64 * replica.size + len(replica.parameters) if units and dense else 0
        self._ramp_steps = max((u.reducer.ramp_steps for u in units if isinstance(u.reducer, Momentum)), default=0)
        self.begin()

    def begin(self) -> None:
        """Look at what comes from now on."""
        self._before = self.meter.link_bytes, self.meter.dense_link_bytes

    def end_step(self, strategy: Strategy, ranks: int) -> None:
        link, dense = self.meter.link_bytes, self.meter.dense_link_bytes
        overlap, before = overlap_of(strategy), self._before
        self._before = link, dense
        if not overlap:  # what is launched every few steps is counted in some of them only: all together tell
            link, dense = link - before[0], dense - before[1]
        if self._told or not dense or link < dense + self._slack or self.meter.steps <= self._ramp_steps:
            return
        self._told = True
        steps = f"{self.meter.steps} steps" if overlap else "a step"
        warnings.warn(
            f"{notation_of(strategy)} put {link:,} bytes on this node's link in {steps}, where a plain all-reduce puts "
            f"{dense:,}: on {ranks} ranks it saves nothing",
            stacklevel=4,
        )
