"""Plots of how methods adapt: a line a layer, colored by its kind."""

from collections import Counter

from thinwire.lab.report import layer_section as layers
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.planes import Plane, draw
from thinwire.lab.report.charts.plot import Plot
from thinwire.lab.report.charts.style import DASHES, Look, kind_look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis
from thinwire.lab.report.layer_section import Group, Values
from thinwire.lab.report.summary import Entry, Section

MORE_DASHES = (*DASHES, "9 3 2 3", "14 4", "1 5")  # for as many layers of a kind as a plot can have

LEAST_RANGE = 2.0  # that an axis shows: the greatest value over the least


def plots(section: Section) -> list[Plot]:
    """Two plots for each method that remembers."""
    found = []
    for number, entry in enumerate(section.entries, start=1):
        said = _drawn(
            entry,
            layers.ratios,
            key=f"layer-ratio-{number}",
            title="how many times smaller, by layer",
            y_name="times smaller, since the evaluation before",
            unit="times",
        )
        unsaid = _drawn(
            entry,
            layers.residual,
            key=f"layer-unsaid-{number}",
            title="what is left unsaid, by layer",
            y_name="norm of what is left unsaid, in gradients",
            unit="number",
        )
        found += [plot for plot in (said, unsaid) if plot]
    return found


def _drawn(entry: Entry, values: Values, key: str, title: str, y_name: str, unit: str) -> Plot | None:
    found = layers.lines(entry, values)
    points = [(step, value) for _, curve in found for step, value in curve.mean if value > 0]
    if not points:
        return None
    x = Axis(0.0, max(step for step, _ in points) * 1.02, LEFT, WIDTH - 14, unit="step")
    y = Axis(*svg.padded_log(_apart([value for _, value in points])), HEIGHT - BOTTOM, TOP, log=True, unit=unit)
    plane = Plane(x, y, "step", y_name, "{:,g}".format, "{:g}x".format if unit == "times" else "{:g}".format)
    groups = [group for group, _ in found]
    drawing = draw([curve for _, curve in found], plane, looks_of(groups), f"{entry.label}: {title}", up=None)
    kinds = {group.kind: kind_look(group.kind).css for group in groups}
    return Plot(key, f"{entry.label}: {title}", drawing, legend=tuple(kinds.items()), method=entry.label)


def _apart(values: list[float]) -> list[float]:
    """The least and the greatest, or what is around them: values that are nearly the same are to look so."""
    low, high = min(values), max(values)
    room = max(1.0, LEAST_RANGE * low / high) ** 0.5
    return [low / room, high * room]


def looks_of(groups: list[Group]) -> dict[str, Look]:
    """A color for each kind of layer; layers of a kind differ by their dashes."""
    seen: Counter[str] = Counter()
    looks = {}
    for group in groups:
        looks[group.label] = kind_look(group.kind, MORE_DASHES[seen[group.kind] % len(MORE_DASHES)])
        seen[group.kind] += 1
    return looks
