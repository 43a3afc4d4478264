"""When to save a checkpoint: steps that all ranks agree on, at most so many seconds apart."""

import time

import torch

import thinwire

LOOKS = 8  # times that ranks compare their clocks between two checkpoints


class Cadence:
    """Chooses the steps after which all ranks save.

    Clocks of ranks differ, so they compare them: after the first steps, and then a few times in an interval. In between
    nothing is exchanged.
    """

    def __init__(self, interval: float, context: thinwire.Context) -> None:
        self._interval, self._context = interval, context
        self._saved = self._looked = time.monotonic()
        self._step: int | None = None  # when clocks were last compared
        self._next = 0

    def looks(self, step: int) -> bool:
        """Whether clocks are compared after this step."""
        if self._step is None:  # the first step of this process
            self._step, self._next = step - 1, step
        return self._interval > 0 and step >= self._next

    def is_due(self, step: int) -> bool:
        """Compare clocks: whether to save after this step. All ranks call it together, and all get the same."""
        assert self._step is not None, "looks() comes first"
        now = time.monotonic()
        mine = torch.tensor([now - self._saved, (now - self._looked) / (step - self._step)], dtype=torch.float64)
        since, per_step = map(float, self._context.all_max(mine))
        due = since > self._interval * (1 - 1 / LOOKS)
        left = self._interval / LOOKS if due else min(self._interval / LOOKS, self._interval - since)
        # The first steps may be slower than the others, or faster.
        ahead = min(max(1, step - self._step) * 2, max(1, int(left / max(per_step, 1e-9))))
        self._step, self._looked, self._next = step, now, step + ahead
        if due:
            self._saved = now
        return due
