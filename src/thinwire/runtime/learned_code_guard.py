"""Watches the error of learned codes."""

import warnings
from typing import Any

from ..core import Replica, Strategy
from ..core.described import parts_of
from ..core.outcome import Learning
from ..reducers import Learned
from ..transports import Meter


class LearnedCodeGuard:
    """Records the error of learned codes in the meter, and warns when a code is learned again because of it."""

    def __init__(self, strategy: Strategy) -> None:
        self._learns = any(isinstance(part, Learned) for part in parts_of(strategy))
        self.by_unit: dict[str, Learning] = {}  # after the last step, by the unit's key

    def end_step(self, strategy: Strategy, replica: Replica, state: Any, *meters: Meter) -> None:
        if not self._learns:
            return
        self.by_unit = learning = strategy.learning(replica, state)
        if not learning:
            return
        worst = max(learning.values(), key=lambda one: one.error)
        relearned, step = sum(one.relearned for one in learning.values()), meters[0].steps
        if relearned > meters[0].relearned:
            warnings.warn(
                f"after step {step}, the relative error of the learned code is {worst.error:.0%}: values are sent "
                "without it until a better one is learned",
                stacklevel=4,
            )
        for meter in meters:
            meter.relearned, meter.code_error = relearned, worst.error
