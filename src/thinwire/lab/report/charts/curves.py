"""Curves of a metric or a loss, per method: the mean over its seeds, and each seed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from statistics import mean

from thinwire.lab.recording.runs import CONSENSUS, Run
from thinwire.lab.report import number_format as units
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.svg import Point
from thinwire.lab.report.summary import Section

Track = dict[float, Point]  # by step


@dataclass(frozen=True)
class Curve:
    """One method's mean curve, and the curves of its seeds."""

    label: str
    mean: list[Point]
    seeds: list[list[Point]]

    @property
    def points(self) -> Iterable[Point]:
        yield from self.mean
        for seed in self.seeds:
            yield from seed


def losses(section: Section, against: str) -> list[Curve]:
    def track(run: Run) -> Track:
        smooth = smoothed([point["loss"] for point in run.history])
        points = zip(run.history, smooth, strict=True)
        return {point["step"]: (_x(run, point, against), loss) for point, loss in points}

    return _curves(section, track, against)


def metrics(section: Section, against: str) -> list[Curve]:
    """The metric at each evaluation; of a run without evaluations, at its end only."""

    def track(run: Run) -> Track:
        end = {"step": run.steps, "seconds": run.seconds["total"], "payload_bytes": run.bytes["payload"]}
        if not run.evaluations:
            return {run.steps: (_x(run, end, against), run.metrics[run.metric])}
        return {point["step"]: (_x(run, point, against), point[run.metric]) for point in run.evaluations}

    return _curves(section, track, against)


def _x(run: Run, point: dict[str, float], against: str) -> float:
    return point["step"] * per_step(run) if against == "examples" else point[against]


def per_step(run: Run) -> int:
    """Examples per step over all ranks; 0 for runs of old versions, which do not record it."""
    return run.examples or run.batch


def consensus_distances(section: Section) -> list[Curve]:
    """The consensus distance by step, of methods whose replicas differ."""

    def track(run: Run) -> Track:
        return {at["step"]: (at["step"], at[CONSENSUS]) for at in run.evaluations if CONSENSUS in at}

    return [curve for curve in _curves(section, track) if curve.mean]


def code_errors(section: Section) -> list[Curve]:
    """The error of learned codes by step, of methods that have some."""

    def track(run: Run) -> Track:
        return {step: (step, error) for step, error in run.learned.get("errors", ())}

    return [curve for curve in _curves(section, track) if curve.mean]


def _curves(section: Section, track: Callable[[Run], Track], against: str = "step") -> list[Curve]:
    curves = []
    for entry in section.senders if against == "payload_bytes" else section.entries:
        tracks = [track(run) for run in entry.runs]
        seeds = [list(one.values()) for one in tracks] if len(tracks) > 1 else []
        curves.append(Curve(entry.label, averaged(tracks), seeds))
    return curves


def averaged(tracks: list[Track]) -> list[Point]:
    """The mean point at each step that all runs have."""
    steps = [step for step in tracks[0] if all(step in track for track in tracks)]
    return [
        (mean(track[step][0] for track in tracks), mean(track[step][1] for track in tracks)) for step in sorted(steps)
    ]


def smoothed(losses: list[float], decay: float = 0.9) -> list[float]:
    """A running mean, as single batches are noisy."""
    total, weight, smooth = 0.0, 0.0, []
    for loss in losses:
        total, weight = decay * total + loss, decay * weight + 1
        smooth.append(total / weight)
    return smooth


def window(section: Section, found: list[Curve]) -> Point:
    """The range of the y axis: the metric in the second half of the training, and the target."""
    lines = [line for curve in found for line in (curve.mean, *curve.seeds)]
    values = [y for line in lines for _, y in line[len(line) // 2 :] if isfinite(y)]
    if section.target is not None:
        values.append(section.target)
    low, high = svg.padded(values or [0.0, 1.0])
    if values and min(values) >= 0:
        low = max(low, 0.0)
    return (low, min(high, 1.0)) if units.is_share(section.first.metric) else (low, high)
