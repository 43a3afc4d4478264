"""Line plots: axes, lines, and labels that do not cover each other."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from thinwire.lab.report import names
from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.curves import Curve
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, TOP, WIDTH, Axis, Point, tag

MOST_POINTS = 160  # of a line; more make no visible difference


@dataclass(frozen=True)
class Plane:
    """The axes, their names and the formats of their values."""

    x: Axis
    y: Axis
    x_name: str
    y_name: str
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]

    def positions(self, line: list[Point], most: int = MOST_POINTS) -> list[Point]:
        known = [(x, y) for x, y in line if self.x.shows(x) and self.y.shows(y)]
        if len(known) > most:
            known = [known[round(i * (len(known) - 1) / (most - 1))] for i in range(most)]
        return [(self.x.at(x), self.y.at(y)) for x, y in known]

    def ends(self, found: Iterable[Curve]) -> dict[str, Point]:
        """The ends of the lines by label, clamped to the plot."""
        ends = {curve.label: positions[-1] for curve in found if (positions := self.positions(curve.mean))}
        return {label: (x, min(max(y, self.y.end), self.y.start)) for label, (x, y) in ends.items()}


def draw(
    found: list[Curve],
    plane: Plane,
    looks: dict[str, Look],
    title: str,
    up: bool | None,
    behind: Callable[[Plane], str] = lambda plane: "",
) -> str:
    """A line plot. Labels are above the plot if `up` is true, below it if false, and on its right if they do not fit.

    If `up` is None, for lines that all end at the same x, labels are on the right.
    """
    colors = {curve.label: looks[curve.label].css for curve in found}
    ends = plane.ends(found)
    last = max(ends, key=lambda label: ends[label][0], default="")
    plane = replace(plane, x=replace(plane.x, end=WIDTH - 6 - names.width(last)))
    height = names.LINE * (1 + max(names.rows([(x, label) for label, (x, _) in plane.ends(found).items()]), default=0))
    top, bottom = TOP, float(HEIGHT - BOTTOM)
    if up is None or height > names.LINE * names.MOST_ROWS:
        widest = max(map(names.width, ends), default=0.0)
        plane = replace(plane, x=replace(plane.x, end=WIDTH - 13 - widest))
        labels = names.beside(plane.ends(found), colors, plane.y.end, plane.y.start, plane.x.end)
    elif up:
        plane = replace(plane, y=replace(plane.y, end=top + height))
        labels = names.beyond(plane.ends(found), colors, plane.y.end, up)
    else:
        plane = replace(plane, y=replace(plane.y, start=bottom - height - 6))
        labels = names.beyond(plane.ends(found), colors, plane.y.start, up)
    return svg.picture(
        svg.frame(plane.x, plane.y, plane.x_name, plane.y_name, plane.x_text, plane.y_text, bottom),
        behind(plane),
        _lines(found, plane, looks),
        *labels,
        title=title,
        class_="lines",
        data_x=plane.x.as_json(),
        data_y=plane.y.as_json(),
    )


def _lines(found: list[Curve], plane: Plane, looks: dict[str, Look]) -> str:
    """The lines in a nested SVG with the same coordinates, which clips them to the plot."""
    x, y = plane.x, plane.y
    left, top, width, height = x.start, y.end - 3, x.end - x.start + 3, y.start - y.end + 6
    lines = [_line(curve, plane, looks[curve.label]) for curve in found]
    box = f"{left} {top} {width} {height}"
    return tag("svg", *lines, x=left, y=top, width=width, height=height, viewBox=box)


def _line(curve: Curve, plane: Plane, look: Look) -> str:
    positions = plane.positions(curve.mean)
    elements = [svg.polyline(plane.positions(seed, MOST_POINTS // 2), class_="seed") for seed in curve.seeds]
    dash = {"stroke_dasharray": look.dash} if look.dash else {}
    elements.append(svg.polyline(positions, class_="line", **dash))
    if len(positions) <= 20:
        elements += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.6) for x, y in positions]
    dense = " dense" if look.hue is None else ""
    return tag("g", *elements, class_=f"series{dense}", data_series=curve.label, style=f"--c:{look.css}")
