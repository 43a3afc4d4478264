"""Runs that hold back a validation part: their metrics are those of the evaluation with the best validation metric."""

from collections.abc import Iterable

from thinwire.lab.recording.runs import Run, validation_name


def validation(run: Run) -> float | None:
    """The best validation metric; None without a validation part."""
    return run.metrics.get(validation_name(run.metric))


def is_validated(run: Run) -> bool:
    """Whether the metrics are those of the step with the best validation metric."""
    name = validation_name(run.metric)
    return run.best_step > 0 and any(name in noted for noted in run.evaluations)


def best_steps(runs: Iterable[Run]) -> str:
    """The step with the best validation metric, or the first and the last one of several runs; empty without any."""
    steps = sorted({run.best_step for run in runs if is_validated(run)})
    return " to ".join(f"{step:,}" for step in dict.fromkeys((*steps[:1], *steps[-1:])))
