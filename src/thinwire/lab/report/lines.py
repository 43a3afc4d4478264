"""Plots of lines: loss or metric, against time or bytes; a line a method, a faint one for each seed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from thinwire.lab.report import curves, names, svg, units
from thinwire.lab.report.curves import Curve
from thinwire.lab.report.looks import Look
from thinwire.lab.report.plot import Plot
from thinwire.lab.report.summary import Section
from thinwire.lab.report.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, Point, tag, words

AGAINST = {"seconds": "time", "payload_bytes": "bytes"}
MOST_POINTS = 160  # of a line; more cannot be told apart
WIDE = 10  # values that differ by more than this factor are drawn by their logarithm


@dataclass(frozen=True)
class Plane:
    """The axes, and how their values are told."""

    x: Axis
    y: Axis
    x_name: str
    y_name: str
    x_text: Callable[[float], str]
    y_text: Callable[[float], str]

    def places(self, line: list[Point], most: int = MOST_POINTS) -> list[Point]:
        known = [(x, y) for x, y in line if self.x.shows(x) and self.y.shows(y)]
        if len(known) > most:
            known = [known[round(i * (len(known) - 1) / (most - 1))] for i in range(most)]
        return [(self.x.at(x), self.y.at(y)) for x, y in known]

    def ends(self, found: Iterable[Curve]) -> dict[str, Point]:
        """Where lines end, by label; those that leave the plot, where they leave it."""
        ends = {curve.entry.label: places[-1] for curve in found if (places := self.places(curve.mean))}
        return {label: (x, min(max(y, self.y.end), self.y.start)) for label, (x, y) in ends.items()}


def metric(section: Section, looks: dict[str, Look], against: str) -> Plot:
    name = units.metric_name(section.first.metric)
    found = curves.metrics(section, against)
    low, high = curves.window(section, found)
    lower = section.first.better == "lower"
    share = units.is_share(section.first.metric)
    text = units.percent if share else units.short
    is_log = lower and low > 0 and high / low > WIDE
    y = Axis(low, high, HEIGHT - BOTTOM, TOP, is_log, "share" if share else "number")
    plane = _plane(section, found, against, y, name, text)
    title = f"{name[0].upper()}{name[1:]} against {AGAINST[against]}"
    drawing = _draw(found, plane, looks, title, up=not lower, target=section)
    return Plot(f"metric-{AGAINST[against]}", title, drawing)


def loss(section: Section, looks: dict[str, Look], against: str) -> Plot:
    found = curves.losses(section, against)
    low, high = svg.padded_log([y for curve in found for _, y in curve.points if 0 < y < float("inf")] or [1.0])
    y = Axis(low, high, HEIGHT - BOTTOM, TOP, log=True)
    plane = _plane(section, found, against, y, "training loss", units.short)
    title = f"Training loss against {AGAINST[against]}"
    drawing = _draw(found, plane, looks, title, up=False)
    return Plot(f"loss-{AGAINST[against]}", title, drawing, "A running mean over batches.")


def _plane(
    section: Section, found: list[Curve], against: str, y: Axis, y_name: str, y_text: Callable[[float], str]
) -> Plane:
    values = [x for curve in found for x, _ in curve.points if x > 0] or [1.0]
    if against == "seconds":
        x = Axis(0.0, max(values) * 1.02, LEFT, WIDTH - 14, unit="seconds")
        x_name = "training time, modelled" if section.modelled else "training time"
        return Plane(x, y, x_name, y_name, units.clock(x.high), y_text)
    # Of a line's first steps there is little to see, and they would take most of a logarithmic axis.
    early = [curve.mean[len(curve.mean) // 50][0] for curve in found if curve.mean]
    low = min((x for x in early if x > 0), default=1.0)
    x = Axis(*svg.padded_log([low, max(values)], 0.02), LEFT, WIDTH - 14, log=True, unit="bytes")
    return Plane(x, y, "bytes said by one rank (payload)", y_name, units.rounded_bytes, y_text)


def _draw(
    found: list[Curve], plane: Plane, looks: dict[str, Look], title: str, up: bool, target: Section | None = None
) -> str:
    """Lines that end upwards have their names above, others below; where these do not fit, they are at the side."""
    colours = {curve.entry.label: looks[curve.entry.label].css for curve in found}
    ends = plane.ends(found)
    last = max(ends, key=lambda label: ends[label][0], default="")
    plane = replace(plane, x=replace(plane.x, end=WIDTH - 6 - names.width(last)))
    height = names.LINE * (1 + max(names.rows([(x, label) for label, (x, _) in plane.ends(found).items()]), default=0))
    top, bottom = TOP, float(HEIGHT - BOTTOM)
    if height > names.LINE * names.MOST_ROWS:
        widest = max(map(names.width, ends))
        plane = replace(plane, x=replace(plane.x, end=WIDTH - 13 - widest))
        named = names.beside(plane.ends(found), colours, plane.y.end, plane.y.start, plane.x.end)
    elif up:
        plane = replace(plane, y=replace(plane.y, end=top + height))
        named = names.beyond(plane.ends(found), colours, plane.y.end, up)
    else:
        plane = replace(plane, y=replace(plane.y, start=bottom - height - 6))
        named = names.beyond(plane.ends(found), colours, plane.y.start, up)
    return svg.picture(
        svg.frame(plane.x, plane.y, plane.x_name, plane.y_name, plane.x_text, plane.y_text, bottom),
        _target(target, plane) if target else "",
        _lines(found, plane, looks),
        *named,
        title=title,
        class_="lines",
        data_x=plane.x.as_json(),
        data_y=plane.y.as_json(),
    )


def _lines(found: list[Curve], plane: Plane, looks: dict[str, Look]) -> str:
    """An SVG within the SVG, in the same coordinates: what leaves it is cut off."""
    x, y = plane.x, plane.y
    left, top, width, height = x.start, y.end - 3, x.end - x.start + 3, y.start - y.end + 6
    lines = [_line(curve, plane, looks[curve.entry.label]) for curve in found]
    box = f"{left} {top} {width} {height}"
    return tag("svg", *lines, x=left, y=top, width=width, height=height, viewBox=box)


def _line(curve: Curve, plane: Plane, look: Look) -> str:
    places = plane.places(curve.mean)
    drawn = [svg.polyline(plane.places(seed, MOST_POINTS // 2), class_="seed") for seed in curve.seeds]
    dash = {"stroke_dasharray": look.dash} if look.dash else {}
    drawn.append(svg.polyline(places, class_="line", **dash))
    if len(places) <= 20:
        drawn += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.6) for x, y in places]
    dense = " dense" if curve.entry.is_dense else ""
    return tag("g", *drawn, class_=f"series{dense}", data_series=curve.entry.label, style=f"--c:{look.css}")


def _target(section: Section, plane: Plane) -> str:
    if section.target is None or not plane.y.low < section.target < plane.y.high:
        return ""
    at = plane.y.at(section.target)
    said = f"target {units.metric_text(section.first.metric, section.target)}"
    # On the left, lines have not come so far yet.
    beside = at - 5 if section.first.better == "higher" else at + 14
    return tag(
        "g",
        tag("line", x1=plane.x.start, x2=plane.x.end, y1=f"{at:.1f}", y2=f"{at:.1f}"),
        words(said, plane.x.start + 5, beside),
        class_="target",
    )
