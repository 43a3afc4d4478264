"""Laws fitted to captured gradients, how near they are, and the bits that codes under them take."""

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

LAWS: dict[str, float | None] = {"gennorm": None, "normal": 2.0, "laplace": 1.0}  # and their shapes, if fixed
LEAST = 256  # entries that tell of a law
DIGITS = 6  # of figures as they are stored
DISTANCES = ("wasserstein", "kolmogorov")


@dataclass(frozen=True)
class Fitted:
    """A law, and how far entries are from it."""

    law: inspect.GeneralizedNormal
    wasserstein: float
    kolmogorov: float


@dataclass(frozen=True)
class Point:
    """A layer's gradient at one step."""

    step: int
    deviation: float
    zeros: float  # the share of entries that are exactly zero; laws are of the others
    fits: dict[str, Fitted]  # by the names in LAWS
    bits: dict[str, float]  # per entry, by the names in codes.CODES
    side: float  # bits per entry of the quantizer's scales, which all codes send beside

    @property
    def shape(self) -> float:
        return self.fits["gennorm"].law.shape

    def distance(self, which: str, law: str) -> float:
        return float(getattr(self.fits[law], which))

    def nearest(self, which: str) -> str:
        return min(LAWS, key=lambda law: self.distance(which, law))


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    entries: int
    points: tuple[Point, ...]  # one at least

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
    """All layers at one step: means, in which a layer counts by its entries, and the shapes."""

    step: int
    layers: int
    entries: int
    shape: float  # the median over the layers
    least_shape: float
    most_shape: float
    zeros: float
    distances: dict[str, dict[str, float]]  # by which, then by law
    nearest: dict[str, dict[str, int]]  # by which: how many layers each law is nearest to
    bits: dict[str, float]
    side: float


@dataclass(frozen=True)
class Study:
    captured: Captured
    form: Form
    layers: tuple[Layer, ...]
    skipped: dict[str, str]  # why there is nothing of a tensor, or of a tensor at a step

    @property
    def largest(self) -> list[Layer]:
        return sorted(self.layers, key=lambda layer: -layer.entries)

    @cached_property
    def overall(self) -> list[Overall]:
        """At each step at which there is something to tell."""
        by_step = {
            step: [(layer, point) for layer in self.layers for point in layer.points if point.step == step]
            for step in self.captured.steps
        }
        return [_overall(step, there) for step, there in by_step.items() if there]

    def as_dict(self) -> dict[str, Any]:
        about = self.captured
        told = {
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
                    "points": [_told(point) for point in layer.points],
                }
                for layer in self.layers
            ],
            "overall": [vars(overall) for overall in self.overall],
            "skipped": self.skipped,
        }
        rounded: dict[str, Any] = _rounded(told)
        return rounded


def study(captured: Captured, form: Form, tell: Callable[[str], None] = lambda said: None) -> Study:
    """Look at every weight at every captured step; small tensors are left out."""
    layers, skipped = [], {}
    for name in captured.names:
        shape = captured.shapes[name]
        entries = math.prod(shape)
        if len(shape) < 2 or entries < LEAST:
            skipped[name] = f"has fewer than {LEAST} entries" if entries < LEAST else "is no matrix: a bias or a norm"
            continue
        points = []
        for step in captured.steps:
            tell(f"{name} at step {step}")
            x = captured.gradient(step, name)
            problem = _problem(x)
            if problem:
                skipped[f"{name} at step {step}"] = problem
            else:
                points.append(_point(x, step, form))
        if points:
            layers.append(Layer(name, captured.kinds[name], entries, tuple(points)))
    if not layers:
        raise ValueError(f"{captured.folder} has no weight to fit laws to: {'; '.join(_reasons(skipped))}")
    return Study(captured, form, tuple(layers), skipped)


def entries_of(x: Tensor) -> Tensor:
    """What laws are fitted to: dead units leave more exact zeros than any law has."""
    flat = x.flatten()
    return flat[flat != 0]


def _problem(x: Tensor) -> str:
    if not bool(x.isfinite().all()):
        return "has NaN or infinity in it"
    there = entries_of(x)
    if there.numel() < LEAST:
        return f"has fewer than {LEAST} entries that are not zero"
    return "" if 0 < float(there.double().std()) < math.inf else "has entries that are all the same"


def _point(x: Tensor, step: int, form: Form) -> Point:
    there = entries_of(x)
    fits = {}
    for name, shape in LAWS.items():
        law = inspect.fit_by_likelihood(there, shape)
        fits[name] = Fitted(law, inspect.wasserstein(there, law), inspect.kolmogorov(there, law))
    quantized = form.quantize(x)
    return Point(
        step=step,
        deviation=float(there.double().std()),
        zeros=1 - there.numel() / x.numel(),
        fits=fits,
        bits=codes.bits(quantized, form),
        side=8 * quantized.side / x.numel(),
    )


def _overall(step: int, there: list[tuple[Layer, Point]]) -> Overall:
    points = [point for _, point in there]
    entries = sum(layer.entries for layer, _ in there)
    shapes = [point.shape for point in points]

    def mean(values: Iterable[float]) -> float:
        return sum(layer.entries * value for (layer, _), value in zip(there, values, strict=True)) / entries

    return Overall(
        step=step,
        layers=len(there),
        entries=entries,
        shape=median(shapes),
        least_shape=min(shapes),
        most_shape=max(shapes),
        zeros=mean(point.zeros for point in points),
        distances={which: {law: mean(p.distance(which, law) for p in points) for law in LAWS} for which in DISTANCES},
        nearest={which: {law: sum(p.nearest(which) == law for p in points) for law in LAWS} for which in DISTANCES},
        bits={code: mean(point.bits[code] for point in points) for code in codes.CODES},
        side=mean(point.side for point in points),
    )


def _told(point: Point) -> dict[str, Any]:
    fits = {
        name: {"shape": fit.law.shape, "scale": fit.law.scale} | {which: getattr(fit, which) for which in DISTANCES}
        for name, fit in point.fits.items()
    }
    return vars(point) | {"fits": fits}


def _rounded(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: _rounded(value) for name, value in told.items()}
    if isinstance(told, list):
        return [_rounded(value) for value in told]
    return float(f"{told:.{DIGITS}g}") if isinstance(told, float) else told


def _reasons(skipped: dict[str, str]) -> Iterator[str]:
    return (f"{name} {reason}" for name, reason in skipped.items())
