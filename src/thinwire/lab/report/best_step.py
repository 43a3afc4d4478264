"""The best step of a run: the evaluation with the best validation metric, whose metrics are the run's."""

from collections.abc import Iterable

from thinwire.lab.recording.runs import Run, validation_name


def validation(run: Run) -> float | None:
    """The best validation metric; None without a validation set."""
    return run.metrics.get(validation_name(run.metric))


def is_validated(run: Run) -> bool:
    """Whether the run's metrics are those of the step with the best validation metric."""
    name = validation_name(run.metric)
    return run.best_step > 0 and any(name in evaluation for evaluation in run.evaluations)


def best_steps(runs: Iterable[Run]) -> str:
    """The best step; of several runs, the earliest and the latest; empty without a validation set."""
    steps = sorted({run.best_step for run in runs if is_validated(run)})
    return " to ".join(f"{step:,}" for step in dict.fromkeys((*steps[:1], *steps[-1:])))
