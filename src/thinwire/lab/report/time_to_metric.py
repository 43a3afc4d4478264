"""When a run reaches a value of its metric."""

from math import isfinite

from thinwire.lab.recording.runs import Run


def seconds_to(run: Run, target: float) -> float | None:
    """When a run first reached a value of its metric, interpolated linearly between evaluations; None if it did not."""
    sign = 1 if run.better == "higher" else -1
    before: tuple[float, float] | None = None
    for evaluation in run.evaluations:
        seconds, value = evaluation["seconds"], evaluation[run.metric]
        if sign * (value - target) >= 0:
            if before is None:
                return seconds
            return before[0] + (target - before[1]) / (value - before[1]) * (seconds - before[0])
        if isfinite(value):
            before = seconds, value
    return None
