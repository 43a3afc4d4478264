"""Plots of how methods adapt to the layers: one line per layer, colored by the layer's kind."""

from collections import Counter

from thinwire.lab.report import layer_section as layers
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.planes import Plane, draw
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import DASHES, Look, kind_look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis
from thinwire.lab.report.layer_section import Group, Values
from thinwire.lab.report.summary import Entry, Section

MORE_DASHES = (*DASHES, "9 3 2 3", "14 4", "1 5")  # one per layer of a kind, up to the most layers in a plot

LEAST_RANGE = 2.0  # least ratio of the highest to the lowest value on the axis


def plots(section: Section) -> list[Plot]:
    """Two plots for each method that keeps residuals: the compression ratio and the norm of the residual."""
    found = []
    for number, entry in enumerate(section.entries, start=1):
        ratio = _plot(
            entry,
            layers.ratios,
            key=f"layer-ratio-{number}",
            title="compression ratio by layer",
            y_name="compression ratio since the previous evaluation",
            unit="times",
        )
        residual = _plot(
            entry,
            layers.residual,
            key=f"layer-residual-{number}",
            title="residual by layer",
            y_name="norm of the residual / norm of the gradient",
            unit="number",
        )
        found += [plot for plot in (ratio, residual) if plot]
    return found


def _plot(entry: Entry, values: Values, key: str, title: str, y_name: str, unit: str) -> Plot | None:
    found = layers.lines(entry, values)
    points = [(step, value) for _, curve in found for step, value in curve.mean if value > 0]
    if not points:
        return None
    x = Axis(0.0, max(step for step, _ in points) * 1.02, LEFT, WIDTH - 14, unit="step")
    y = Axis(*svg.padded_log(_widened([value for _, value in points])), HEIGHT - BOTTOM, TOP, log=True, unit=unit)
    plane = Plane(x, y, "step", y_name, "{:,g}".format, "{:g}x".format if unit == "times" else "{:g}".format)
    groups = [group for group, _ in found]
    drawing = draw([curve for _, curve in found], plane, looks_of(groups), f"{entry.label}: {title}", up=None)
    kinds = {group.kind: kind_look(group.kind).css for group in groups}
    return Plot(key, f"{entry.label}: {title}", drawing, legend=tuple(kinds.items()), method=entry.label)


def _widened(values: list[float]) -> list[float]:
    """The range of the values, widened to LEAST_RANGE so that nearly equal values look nearly equal."""
    low, high = min(values), max(values)
    margin = max(1.0, LEAST_RANGE * low / high) ** 0.5
    return [low / margin, high * margin]


def looks_of(groups: list[Group]) -> dict[str, Look]:
    """One color per kind of layer; layers of the same kind differ in their dashes."""
    seen: Counter[str] = Counter()
    looks = {}
    for group in groups:
        looks[group.label] = kind_look(group.kind, MORE_DASHES[seen[group.kind] % len(MORE_DASHES)])
        seen[group.kind] += 1
    return looks
