"""When to save a checkpoint: steps that all ranks agree on, at most `interval` seconds apart."""

import time

import torch

import thinwire

COMPARISONS = 8  # of the ranks' clocks, between two checkpoints


class CheckpointSchedule:
    """Chooses the steps after which all ranks save.

    The clocks of the ranks differ, so the ranks compare them: after the first steps, and then a few times per interval.
    Between comparisons they exchange nothing.
    """

    def __init__(self, interval: float, context: thinwire.Context) -> None:
        self._interval, self._context = interval, context
        self._saved = self._compared = self._stepped = time.monotonic()
        self._longest = 0.0  # seconds from one step to the next, evaluations included
        self._step: int | None = None  # after which clocks were last compared
        self._next = 0

    def compares(self, step: int) -> bool:
        """Whether the ranks compare clocks after this step; must be called after every step."""
        now = time.monotonic()
        if self._step is None:  # the first step of this process
            self._step, self._next = step - 1, step
        else:
            self._longest = max(self._longest, now - self._stepped)
        self._stepped = now
        return self._interval > 0 and step >= self._next

    def is_due(self, step: int) -> bool:
        """Compare clocks and decide whether to save after this step: collective, with the same result on all ranks."""
        assert self._step is not None, "call compares() first"
        now = time.monotonic()
        per_step = (now - self._compared) / (step - self._step)
        mine = torch.tensor([now - self._saved, per_step, self._longest], dtype=torch.float64)
        since, per_step, longest = map(float, self._context.all_max(mine))
        between = self._interval / COMPARISONS
        # Until the next comparison, steps may become twice as slow, and one may include an evaluation.
        due = since > self._interval - 2 * between - longest
        left = between if due else min(between, self._interval - since - longest)
        # The first steps may be slower than the others, or faster.
        ahead = min(max(1, step - self._step) * 2, max(1, int(left / max(per_step, 1e-9))))
        self._step, self._compared, self._next = step, now, step + ahead
        if due:
            self._saved = now
        return due
