"""Says when a code that was learned does not do any more."""

import warnings
from typing import Any

from ..core import Replica, Strategy
from ..core.described import parts_of
from ..core.outcome import Learning
from ..reducers import Learned
from ..transports import Meter


class Guard:
    """Notes in the meter how far learned codes are off, and warns when they are to be learned anew."""

    def __init__(self, strategy: Strategy) -> None:
        self._learns = any(isinstance(part, Learned) for part in parts_of(strategy))
        self.found: dict[str, Learning] = {}  # how well each unit has learned to say less, by its key; after a step

    def end_step(self, strategy: Strategy, replica: Replica, state: Any, *meters: Meter) -> None:
        if not self._learns:
            return
        self.found = found = strategy.learning(replica, state)
        if not found:
            return
        worst = max(found.values(), key=lambda one: one.error)
        relearned, step = sum(one.relearned for one in found.values()), meters[0].steps
        if relearned > meters[0].relearned:
            warnings.warn(
                f"after step {step}, the learned code is off by {worst.error:.0%} of what it stands for: values are "
                "said as they are until a better one is learned",
                stacklevel=4,
            )
        for meter in meters:
            meter.relearned, meter.code_error = relearned, worst.error
