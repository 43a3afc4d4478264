"""The plots of the page: entries and fitted distributions, and shapes and bits over the training."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from math import sqrt
from statistics import median

import torch
from torch import Tensor

from thinwire import inspect
from thinwire.lab.fit.code_lengths import ENTROPY, HUFFMAN, ZSTD
from thinwire.lab.fit.fit_findings import NAMES
from thinwire.lab.fit.fit_study import Layer, Point, Study, entries_of
from thinwire.lab.report import number_format as units
from thinwire.lab.report.adaptation import looks_of
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.curves import Curve
from thinwire.lab.report.charts.planes import Plane, draw
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import Look, kind_look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, polyline
from thinwire.lab.report.layer_section import Group, labels

ENTRIES = "entries"
LOOKS = {ENTRIES: Look(None)} | {NAMES[name]: Look(hue) for hue, name in enumerate(("gennorm", "normal", "laplace"))}
MOST_BINS = 79
SHOWN = 0.9999  # fraction of the entries within the range of the histogram
MOST_DEVIATIONS, QUANTILES = (
    3.7,
    75,
)  # range of the quantiles, in those of a normal distribution, and their number per side
SEVERAL = 9  # most layers that a plot shows by name


def of_entries(study: Study, layer: Layer, number: int) -> list[Plot]:
    """Plots of a layer's entries at its last step, with the fitted distributions."""
    point = layer.last
    entries = entries_of(study.captured.gradient(point.step, layer.name)).double().sort().values
    return [_densities(layer, point, entries, number), _quantiles(layer, point, entries, number)]


def _densities(layer: Layer, point: Point, entries: Tensor, number: int) -> Plot:
    edge = float(entries.abs().sort().values[int(SHOWN * (len(entries) - 1))])
    bins = min(
        MOST_BINS, int(4 * len(entries) ** (1 / 3)) | 1
    )  # fewer for small layers, whose bins would be mostly empty
    edges = torch.linspace(-edge, edge, bins + 1, dtype=torch.float64)
    counts = torch.diff(torch.searchsorted(entries, edges))
    heights = (counts / (len(entries) * 2 * edge / bins) * point.deviation).tolist()
    histogram = [
        (x / point.deviation, height)
        for sides, height in zip(pairwise(edges.tolist()), heights, strict=True)
        for x in sides
    ]
    found = [Curve(ENTRIES, histogram, [])]
    at = torch.linspace(-edge, edge, 2 * MOST_BINS + 1, dtype=torch.float64)
    for name, fit in point.fits.items():
        densities = (fit.distribution.density(at) * point.deviation).tolist()
        found.append(Curve(NAMES[name], list(zip((at / point.deviation).tolist(), densities, strict=True)), []))
    low, high = svg.padded_log([height for height in heights if height > 0])
    most = max(high, *(y for curve in found for _, y in curve.mean))
    x = Axis(-edge / point.deviation, edge / point.deviation, LEFT, WIDTH - 14)
    plane = Plane(
        x, _upwards(low, most * 1.2, log=True), "entry, in standard deviations", "density", units.short, "{:g}".format
    )
    title = f"{layer.name}: density of the entries"
    note = f"At step {point.step:,}, of {len(entries):,} nonzero entries. Logarithmic."
    return Plot(f"density-{number}", title, draw(found, plane, LOOKS, title, up=None), note)


def _quantiles(layer: Layer, point: Point, entries: Tensor, number: int) -> Plot:
    normal = inspect.GeneralizedNormal(2.0, sqrt(2.0))
    # Evenly spaced in standard deviations of a normal distribution, no farther out than the entries are.
    tail = float(normal.quantile(max(0.5 / len(entries), float(normal.below(-MOST_DEVIATIONS)))))
    below = normal.below(torch.linspace(tail, 0, QUANTILES + 1, dtype=torch.float64))
    empirical = _quantiles_of(entries, below)
    found = []
    for name, fit in point.fits.items():
        lower = fit.distribution.quantile(below)
        expected = torch.cat([lower, -lower.flip(0)[1:]]) / point.deviation
        found.append(
            Curve(NAMES[name], list(zip(expected.tolist(), (empirical / point.deviation).tolist(), strict=True)), [])
        )
    x_most = max(abs(x) for curve in found for x, _ in curve.mean) * 1.03
    y_most = max(abs(y) for curve in found for _, y in curve.mean) * 1.03
    x = Axis(-x_most, x_most, LEFT, WIDTH - 14)
    plane = Plane(
        x,
        _upwards(-y_most, y_most),
        "quantile of the distribution",
        "quantile of the entries",
        units.short,
        units.short,
    )
    title = f"{layer.name}: Q-Q plot"
    note = "In standard deviations of the entries. A distribution that fits is on the dashed diagonal."
    drawing = draw(found, plane, LOOKS, title, up=None, behind=_diagonal)
    return Plot(f"quantiles-{number}", title, drawing, note)


def _quantiles_of(entries: Tensor, below: Tensor) -> Tensor:
    """The quantiles of the sorted entries at the probabilities `below`, and at their mirror images above 1/2."""
    indices = (below * len(entries)).long().clamp(max=len(entries) - 1)
    return torch.cat([entries[indices], entries[(len(entries) - 1 - indices).flip(0)[1:]]])


def _diagonal(plane: Plane) -> str:
    end = min(plane.x.high, plane.y.high)
    return polyline([(plane.x.at(value), plane.y.at(value)) for value in (-end, end)], class_="front")


def shapes(study: Study) -> Plot:
    """One line per layer; of many layers, the median by kind of layer, and the layers as thin lines."""
    title = "Shape of GenNorm over the training"
    shapes_by_layer = {
        layer.name: [(float(point.step), point.shape) for point in layer.points] for layer in study.layers
    }
    if len(study.layers) <= SEVERAL:
        short = labels({layer.name: layer.kind for layer in study.layers})
        groups = [Group(short[layer.name], layer.kind, (layer.name,)) for layer in study.layers]
        found = [Curve(group.label, shapes_by_layer[group.names[0]], []) for group in groups]
        looks = looks_of(groups)
        note = "One line per layer."
    else:
        by_kind = defaultdict[str, list[Layer]](list)
        for layer in study.layers:
            by_kind[layer.kind].append(layer)
        found = [
            Curve(kind, _medians(layers), [shapes_by_layer[layer.name] for layer in layers])
            for kind, layers in by_kind.items()
        ]
        looks = {kind: kind_look(kind) for kind in by_kind}
        note = "Thick: the median over the layers of a kind. Thin: each layer."
    y = _upwards(*svg.padded([shape for track in shapes_by_layer.values() for _, shape in track]))
    drawing = draw(found, _over_steps(study, y, "shape"), looks, title, up=None)
    kinds = {layer.kind: kind_look(layer.kind).css for layer in study.layers}
    return Plot("shapes", title, drawing, note, legend=tuple(kinds.items()))


def _medians(layers: Iterable[Layer]) -> list[svg.Point]:
    by_step = defaultdict[int, list[float]](list)
    for layer in layers:
        for point in layer.points:
            by_step[point.step].append(point.shape)
    return [(float(step), median(by_step[step])) for step in sorted(by_step)]


def bits(study: Study) -> Plot:
    title = f"Bits per entry of {study.form.name} over the training"
    labels_by_code = {ENTROPY: ENTROPY, **{code: NAMES[model] for model, code in HUFFMAN.items()}, ZSTD: ZSTD}
    found = [
        Curve(label, [(float(overall.step), overall.bits[code]) for overall in study.overall], [])
        for code, label in labels_by_code.items()
    ]
    looks = LOOKS | {ENTROPY: Look(None), NAMES["histogram"]: Look(3, "2 3"), ZSTD: Look(4, "7 3")}
    plane = _over_steps(study, _upwards(*svg.padded([y for curve in found for _, y in curve.mean])), "bits per entry")
    note = "Over all layers: Huffman codes with each distribution and with a table, the entropy, and zstandard."
    return Plot("bits", title, draw(found, plane, looks, title, up=None), note)


def _over_steps(study: Study, y: Axis, y_name: str) -> Plane:
    x = Axis(0.0, study.captured.length * 1.02, LEFT, WIDTH - 14, unit="step")
    return Plane(x, y, "step", y_name, "{:,g}".format, units.short)


def _upwards(low: float, high: float, log: bool = False) -> Axis:
    return Axis(low, high, HEIGHT - BOTTOM, TOP, log)


def chosen(study: Study) -> list[Layer]:
    """The first, the middle and the last layer, and the largest."""
    layers = study.layers
    some = [layers[0], layers[len(layers) // 2], layers[-1], study.largest[0]]
    return [layer for layer in layers if layer in some]
