"""Learning rates that were tried with a method, and the choice of the best."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isfinite, log
from statistics import mean

from thinwire.lab.recording.runs import Run
from thinwire.lab.report.best_step import validation


def lr_scale(run: Run) -> float:
    """The factor of the workload's learning rate."""
    return float(run.plan.get("lr_scale", 1.0))


@dataclass(frozen=True)
class Rate:
    """One learning rate of a grid. The rates are compared on the seeds that all of them have."""

    scale: float  # times the workload's learning rate
    runs: tuple[Run, ...]  # by seed
    shared: tuple[Run, ...]  # the runs of the seeds that every rate of the grid has

    @property
    def validation(self) -> float | None:
        """The mean validation metric over the shared seeds; None if a run has none, or if no seed is shared."""
        known = [value for run in self.shared if (value := validation(run)) is not None]
        return mean(known) if known and len(known) == len(self.shared) else None

    @property
    def metric(self) -> float:
        return mean(run.metrics[run.metric] for run in self.shared or self.runs)


def grid(runs: Iterable[Run]) -> tuple[Rate, ...]:
    """Runs of one method by their learning rates, lowest first."""
    by_scale: dict[float, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.seed):
        by_scale[lr_scale(run)].append(run)
    shared = set.intersection(*({run.seed for run in same} for same in by_scale.values()))
    return tuple(
        Rate(scale, tuple(same), tuple(run for run in same if run.seed in shared))
        for scale, same in sorted(by_scale.items())
    )


def best(rates: tuple[Rate, ...]) -> Rate:
    """The rate with the best validation metric; then the one with the most seeds, then the one nearest to 1."""
    compared = all(rate.validation is not None for rate in rates)
    sign = 1 if rates[0].runs[0].better == "higher" else -1

    def order(rate: Rate) -> tuple[float, int, float]:
        value = rate.validation if compared and rate.validation is not None else 0.0
        return sign * value if isfinite(value) else -inf, len(rate.runs), -abs(log(rate.scale))

    return max(rates, key=order)


def deduplicated(runs: Iterable[Run]) -> list[Run]:
    """The runs, without copies: runs in several folders with the same plan and the same metrics."""

    def key(number: int, run: Run) -> object:
        same = run.label, run.method, run.seed, run.link, sorted(run.plan.items()), sorted(run.metrics.items())
        return same if run.plan else number

    return list({repr(key(number, run)): run for number, run in enumerate(runs)}.values())
