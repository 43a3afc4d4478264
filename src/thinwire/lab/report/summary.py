"""Groups runs: comparable runs into a section, runs of a method that differ in their seed only into an entry."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from statistics import mean, stdev

import thinwire
from thinwire.lab.recording.runs import CONSENSUS, WORST, Run
from thinwire.lab.report import tuning
from thinwire.lab.report.number_format import is_share, metric_name
from thinwire.lab.report.time_to_metric import seconds_to
from thinwire.lab.report.tuning import Rate

SHORT = {repr(method.built): name for name, method in thinwire.METHODS.items()}
DENSE = repr(thinwire.METHODS["dense"].built)
PARTS = ("compute", "encode", "exchange", "decode")  # of a step's time, in order
CLOSE = 0.01  # the default target is within this fraction of dense's final metric


@dataclass(frozen=True)
class Figure:
    """A number over several runs."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def spread(self) -> float | None:
        """The sample standard deviation; None for a single value."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Entry:
    """One method in a section: its runs, which differ in their seed only."""

    label: str
    runs: tuple[Run, ...]
    tried: tuple[Rate, ...] = ()  # learning rates, if several were tried; `runs` are those of the best

    @property
    def method(self) -> str:
        return self.runs[0].method

    @property
    def is_dense(self) -> bool:
        return self.method == DENSE and not self.runs[0].variant

    @property
    def sends(self) -> bool:
        """Whether the method exchanges anything; a rank that trains alone does not."""
        return self.runs[0].variant != "alone"

    @property
    def lr_scale(self) -> float:
        return tuning.lr_scale(self.runs[0])

    def over(self, number: Callable[[Run], float]) -> Figure:
        return Figure(tuple(number(run) for run in self.runs))

    @cached_property
    def metric(self) -> Figure:
        return self.over(lambda run: run.metrics[run.metric])

    @cached_property
    def ratio(self) -> Figure:
        return self.over(lambda run: run.ratio)

    @cached_property
    def worst_replica(self) -> Figure | None:
        """The metric of each run's worst replica; None if the replicas are equal."""
        return self._at_end(f"{WORST}{self.runs[0].metric}")

    @cached_property
    def consensus_distance(self) -> Figure | None:
        """The replicas' distance to their mean at the end; None if they are equal."""
        return self._at_end(CONSENSUS)

    def _at_end(self, name: str) -> Figure | None:
        """A metric at the last step, even if `run.metrics` are those of an earlier step; None if a run lacks it."""
        ends = [run.metrics | (run.evaluations[-1] if run.evaluations else {}) for run in self.runs]
        return Figure(tuple(end[name] for end in ends)) if all(name in end for end in ends) else None

    def bytes_per_step(self, which: str) -> Figure | None:
        """Payload, link or wire bytes; None if not every run recorded them."""
        if not all(which in run.bytes for run in self.runs):
            return None
        return self.over(lambda run: run.bytes[which] / run.steps)

    def seconds(self, which: str) -> Figure:
        return self.over(lambda run: run.seconds[which])

    def seconds_per_step(self, which: str = "total") -> Figure:
        return self.over(lambda run: run.seconds[which] / run.steps)

    def kind_ratios(self) -> dict[str, Figure]:
        """The compression ratio by kind of layer, of the runs that recorded their layers."""
        ratios_by_kind: dict[str, list[float]] = defaultdict(list)
        for run in self.runs:
            for kind, size in run.kinds.items() if run.layers else ():
                if size["payload"]:
                    ratios_by_kind[kind].append(size["dense"] / size["payload"])
        return {kind: Figure(tuple(ratios)) for kind, ratios in ratios_by_kind.items()}

    def kinds(self, which: str) -> dict[str, float]:
        """Bytes per step by kind of layer, of the runs that recorded them."""
        sizes_by_kind: dict[str, list[float]] = defaultdict(list)
        for run in self.runs:
            for kind, size in run.kinds.items():
                sizes_by_kind[kind].append(size[which])
        return {kind: mean(sizes) for kind, sizes in sizes_by_kind.items()}


@dataclass(frozen=True)
class Reached:
    """When the runs of an entry reached a target."""

    seconds: Figure | None  # of the runs that reached it; None if none did
    runs: int

    @property
    def by(self) -> int:
        return len(self.seconds.values) if self.seconds else 0

    @property
    def by_all(self) -> bool:
        return self.by == self.runs


@dataclass(frozen=True)
class Section:
    """The comparable runs of one task on one cluster, one entry per method: dense first, then by compression ratio."""

    entries: tuple[Entry, ...]
    target: float | None  # of the metric; None if no run has a finite metric

    @property
    def first(self) -> Run:
        return self.entries[0].runs[0]

    @property
    def runs(self) -> list[Run]:
        return [run for entry in self.entries for run in entry.runs]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    @property
    def is_tuned(self) -> bool:
        """Whether an entry's learning rate is not the workload's own, or was chosen from several."""
        return any(entry.tried or entry.lr_scale != 1 for entry in self.entries)

    @property
    def dense(self) -> Entry | None:
        return next((entry for entry in self.entries if entry.is_dense), None)

    @property
    def senders(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.sends]

    @property
    def modeled(self) -> bool:
        return any(run.modeled for run in self.runs)

    @property
    def replicas_differ(self) -> bool:
        """Whether any method's replicas differ."""
        return any(entry.consensus_distance is not None for entry in self.entries)

    def missing(self) -> dict[str, list[int]]:
        """The seeds that other entries have and an entry lacks, by label."""
        absent = {e.label: [s for s in self.seeds if s not in {run.seed for run in e.runs}] for e in self.entries}
        return {label: seeds for label, seeds in absent.items() if seeds}

    def to_target(self, entry: Entry) -> Reached | None:
        """When the entry's runs reached the target; None if a run has no evaluations."""
        if self.target is None or not all(run.evaluations for run in entry.runs):
            return None
        found = [seconds_to(run, self.target) for run in entry.runs]
        reached = tuple(seconds for seconds in found if seconds is not None)
        return Reached(Figure(reached) if reached else None, len(entry.runs))

    def step_speedup(self, entry: Entry) -> float | None:
        """The speedup of a step over dense."""
        return None if self.dense is None else _speedup(self.dense.seconds_per_step(), entry.seconds_per_step())

    def target_speedup(self, entry: Entry) -> float | None:
        """The speedup over dense in reaching the target; None unless all seeds of both reach it."""
        theirs = self.to_target(self.dense) if self.dense else None
        ours = self.to_target(entry)
        if theirs is None or ours is None or not (theirs.by_all and ours.by_all):
            return None
        assert theirs.seconds is not None
        assert ours.seconds is not None
        return _speedup(theirs.seconds, ours.seconds)


def _speedup(slow: Figure, fast: Figure) -> float | None:
    return slow.mean / fast.mean if fast.mean > 0 else None


def sections(runs: Iterable[Run], target: float | None = None) -> list[Section]:
    """Group runs into sections. The default target is within 1 % of dense's metric, or of the best without dense."""
    tasks: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in tuning.deduplicated(runs):
        task = (run.workload, run.link, run.ranks, run.transport, run.modeled, run.budget, run.shards, run.batch)
        tasks[(*task, run.threads, run.straggler, run.metric, run.better)].append(run)
    metrics = sorted({run.metric for (run, *_) in tasks.values()})
    if target is not None and len(metrics) > 1:
        raise ValueError(
            f"one target cannot apply to several metrics ({', '.join(metrics)}); report on one task at a time"
        )
    return [_section(task, target) for task in tasks.values()]


def _section(runs: list[Run], target: float | None) -> Section:
    grouped: dict[tuple[str, str, int, str], list[Run]] = defaultdict(list)
    for run in runs:
        name = run.label or run.variant or SHORT.get(run.method, run.method)
        grouped[name, run.method, run.steps, run.variant].append(run)
    uses = Counter(label for label, *_ in grouped)
    entries = []
    for (label, method, steps, variant), same in grouped.items():
        if uses[label] > 1:  # the user gave several methods the same name: the labels name method and steps
            label = f"{label}: {method}, {variant + ', ' if variant else ''}{steps} steps"
        rates = tuning.grid(same)
        entries.append(Entry(label, tuning.best(rates).runs, rates if len(rates) > 1 else ()))
    entries.sort(key=lambda entry: (not entry.is_dense, entry.ratio.mean))
    if target is not None and is_share(runs[0].metric) and not 0 <= target <= 1:
        raise ValueError(f"the target for {metric_name(runs[0].metric)} must be from 0 to 1, not {target}")
    return Section(tuple(entries), _target(entries) if target is None else target)


def _target(entries: list[Entry]) -> float | None:
    """The metric within 1 % of dense's; without dense, within 1 % of the best method's."""
    better = entries[0].runs[0].better
    known = [entry for entry in entries if isfinite(entry.metric.mean)]
    if not known:
        return None
    best = (max if better == "higher" else min)(known, key=lambda entry: entry.metric.mean)
    dense = next((entry for entry in known if entry.is_dense), best)
    slack = CLOSE * abs(dense.metric.mean)
    return dense.metric.mean - slack if better == "higher" else dense.metric.mean + slack
