"""Fits distributions to captured gradients; measures their distances and the bits of codes that use them."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from torch import Tensor

from thinwire import inspect
from thinwire.lab.fit import code_lengths as codes
from thinwire.lab.fit.quantizers import Form
from thinwire.lab.recording.captured import Captured

DISTRIBUTIONS: dict[str, float | None] = {"gennorm": None, "normal": 2.0, "laplace": 1.0}  # shape, None if fitted
LEAST = 256  # entries needed for a fit
DIGITS = 6  # significant digits in the JSON output
DISTANCES = ("wasserstein", "kolmogorov")


@dataclass(frozen=True)
class Fitted:
    """A fitted distribution, and its distances to the entries."""

    distribution: inspect.GeneralizedNormal
    wasserstein: float
    kolmogorov: float


@dataclass(frozen=True)
class Point:
    """A layer's gradient at one step."""

    step: int
    deviation: float
    zeros: float  # fraction of entries that are exactly zero; distributions are fitted to the others
    fits: dict[str, Fitted]  # by the names in DISTRIBUTIONS
    bits: dict[str, float]  # per entry, by the names in codes.CODES
    side: float  # bits per entry of the quantizer's scales, not included in `bits`

    @property
    def shape(self) -> float:
        return self.fits["gennorm"].distribution.shape

    def distance(self, which: str, name: str) -> float:
        return float(getattr(self.fits[name], which))

    def nearest(self, which: str) -> str:
        return min(DISTRIBUTIONS, key=lambda name: self.distance(which, name))


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    entries: int
    points: tuple[Point, ...]  # one or more

    @property
    def first(self) -> Point:
        return self.points[0]

    @property
    def last(self) -> Point:
        return self.points[-1]

    def at(self, step: int) -> Point | None:
        return next((point for point in self.points if point.step == step), None)


@dataclass(frozen=True)
class Overall:
    """All layers at one step: means weighted by the number of entries, and the range of the shapes."""

    step: int
    layers: int
    entries: int
    shape: float  # the median over the layers
    least_shape: float
    most_shape: float
    zeros: float
    distances: dict[str, dict[str, float]]  # by distance, then by distribution
    nearest: dict[str, dict[str, int]]  # by distance: the number of layers that each distribution is nearest to
    bits: dict[str, float]
    side: float


@dataclass(frozen=True)
class Study:
    captured: Captured
    form: Form
    layers: tuple[Layer, ...]
    skipped: dict[str, str]  # reason by tensor, or by tensor and step

    @property
    def largest(self) -> list[Layer]:
        return sorted(self.layers, key=lambda layer: -layer.entries)

    @cached_property
    def overall(self) -> list[Overall]:
        """The figures of all layers, at each step with at least one fit."""
        by_step = {
            step: [(layer, point) for layer in self.layers for point in layer.points if point.step == step]
            for step in self.captured.steps
        }
        return [_overall(step, fitted) for step, fitted in by_step.items() if fitted]

    def as_dict(self) -> dict[str, Any]:
        about = self.captured
        content = {
            "workload": about.workload,
            "method": about.method,
            "seed": about.seed,
            "batch": about.batch,
            "length": about.length,
            "steps": list(about.steps),
            "form": self.form.name,
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "entries": layer.entries,
                    "points": [_as_dict(point) for point in layer.points],
                }
                for layer in self.layers
            ],
            "overall": [vars(overall) for overall in self.overall],
            "skipped": self.skipped,
        }
        rounded: dict[str, Any] = _rounded(content)
        return rounded


def study(captured: Captured, form: Form, progress: Callable[[str], None] = lambda text: None) -> Study:
    """Fit every weight at every captured step; small tensors, biases and norms are skipped."""
    layers, skipped = [], {}
    for name in captured.names:
        shape = captured.shapes[name]
        entries = math.prod(shape)
        if len(shape) < 2 or entries < LEAST:
            skipped[name] = (
                f"has fewer than {LEAST} entries" if entries < LEAST else "is not a matrix: a bias or a norm"
            )
            continue
        points = []
        for step in captured.steps:
            progress(f"{name} at step {step}")
            x = captured.gradient(step, name)
            problem = _problem(x)
            if problem:
                skipped[f"{name} at step {step}"] = problem
            else:
                points.append(_point(x, step, form))
        if points:
            layers.append(Layer(name, captured.kinds[name], entries, tuple(points)))
    if not layers:
        raise ValueError(f"{captured.folder} has no weight to fit distributions to: {'; '.join(_reasons(skipped))}")
    return Study(captured, form, tuple(layers), skipped)


def entries_of(x: Tensor) -> Tensor:
    """The entries that distributions are fitted to: exact zeros, such as those of dead units, are left out."""
    flat = x.flatten()
    return flat[flat != 0]


def _problem(x: Tensor) -> str:
    if not bool(x.isfinite().all()):
        return "contains NaN or infinity"
    entries = entries_of(x)
    if entries.numel() < LEAST:
        return f"has fewer than {LEAST} entries that are not zero"
    return "" if 0 < float(entries.double().std()) < math.inf else "has entries that are all equal"


def _point(x: Tensor, step: int, form: Form) -> Point:
    entries = entries_of(x)
    fits = {}
    for name, shape in DISTRIBUTIONS.items():
        fitted = inspect.fit_by_likelihood(entries, shape)
        fits[name] = Fitted(fitted, inspect.wasserstein(entries, fitted), inspect.kolmogorov(entries, fitted))
    quantized = form.quantize(x)
    return Point(
        step=step,
        deviation=float(entries.double().std()),
        zeros=1 - entries.numel() / x.numel(),
        fits=fits,
        bits=codes.bits(quantized, form),
        side=8 * quantized.side / x.numel(),
    )


def _overall(step: int, fitted: list[tuple[Layer, Point]]) -> Overall:
    points = [point for _, point in fitted]
    entries = sum(layer.entries for layer, _ in fitted)
    shapes = [point.shape for point in points]

    def mean(values: Iterable[float]) -> float:
        return sum(layer.entries * value for (layer, _), value in zip(fitted, values, strict=True)) / entries

    return Overall(
        step=step,
        layers=len(fitted),
        entries=entries,
        shape=median(shapes),
        least_shape=min(shapes),
        most_shape=max(shapes),
        zeros=mean(point.zeros for point in points),
        distances={
            which: {name: mean(p.distance(which, name) for p in points) for name in DISTRIBUTIONS}
            for which in DISTANCES
        },
        nearest={
            which: {name: sum(p.nearest(which) == name for p in points) for name in DISTRIBUTIONS}
            for which in DISTANCES
        },
        bits={code: mean(point.bits[code] for point in points) for code in codes.CODES},
        side=mean(point.side for point in points),
    )


def _as_dict(point: Point) -> dict[str, Any]:
    fits = {
        name: {"shape": fit.distribution.shape, "scale": fit.distribution.scale}
        | {which: getattr(fit, which) for which in DISTANCES}
        for name, fit in point.fits.items()
    }
    return vars(point) | {"fits": fits}


def _rounded(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _rounded(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_rounded(value) for value in content]
    return float(f"{content:.{DIGITS}g}") if isinstance(content, float) else content


def _reasons(skipped: dict[str, str]) -> Iterator[str]:
    return (f"{name} {reason}" for name, reason in skipped.items())
