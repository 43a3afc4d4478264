"""When to save a checkpoint: steps that all ranks agree on, at most `interval` seconds apart."""

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
        self._saved = self._looked = self._stepped = time.monotonic()
        self._longest = 0.0  # seconds from one step to the next, evaluations and all
        self._step: int | None = None  # when clocks were last compared
        self._next = 0

    def looks(self, step: int) -> bool:
        """Whether clocks are compared after this step; to be asked after every step."""
        now = time.monotonic()
        if self._step is None:  # the first step of this process
            self._step, self._next = step - 1, step
        else:
            self._longest = max(self._longest, now - self._stepped)
        self._stepped = now
        return self._interval > 0 and step >= self._next

    def is_due(self, step: int) -> bool:
        """Compare clocks: whether to save after this step. All ranks call it together, and all get the same."""
        assert self._step is not None, "looks() comes first"
        now = time.monotonic()
        per_step = (now - self._looked) / (step - self._step)
        mine = torch.tensor([now - self._saved, per_step, self._longest], dtype=torch.float64)
        since, per_step, longest = map(float, self._context.all_max(mine))
        stretch = self._interval / LOOKS
        # Until the next look, steps may become twice as slow, and an evaluation may come.
        due = since > self._interval - 2 * stretch - longest
        left = stretch if due else min(stretch, self._interval - since - longest)
        # The first steps may be slower than the others, or faster.
        ahead = min(max(1, step - self._step) * 2, max(1, int(left / max(per_step, 1e-9))))
        self._step, self._looked, self._next = step, now, step + ahead
        if due:
            self._saved = now
        return due
