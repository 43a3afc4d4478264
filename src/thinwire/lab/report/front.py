"""The plane of ratio and metric: how much smaller against how good, and the front that nothing beats in both."""

from collections.abc import Iterable
from html import escape
from math import isfinite

from thinwire.lab.report import svg, units
from thinwire.lab.report.looks import Look
from thinwire.lab.report.plot import Plot
from thinwire.lab.report.summary import Entry, Section
from thinwire.lab.report.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, tag, words

Box = tuple[float, float, float, float]  # left, top, right, bottom
# Where a name may be, seen from its point: on which side, and how far up; first beyond the front, then behind it.
ASIDE = ((1, 8), (0, 14), (1, -3), (-1, 8), (-1, -3), (-1, -12), (0, -20), (1, -14), (1, 24), (-1, -26))


def front(section: Section, looks: dict[str, Look]) -> Plot:
    name = units.metric_name(section.first.metric)
    share = units.is_share(section.first.metric)
    known = [entry for entry in section.entries if isfinite(entry.metric.mean) and isfinite(entry.ratio.mean)]
    x, y = _axes(known)
    text = units.percent if share else units.short
    places = [(entry.ratio.mean, entry.metric.mean) for entry in known]
    unbeaten = pareto(places, section.first.better)
    points = [(x.at(ratio), y.at(metric)) for ratio, metric in places]
    taken = [(left - 6, top - 6, left + 6, top + 6) for left, top in points]
    title = f"How much smaller, how good: {name} against ratio"
    drawing = svg.picture(
        svg.frame(x, y, "times smaller than the gradients (payload)", name, lambda ratio: f"{ratio:g}x", text),
        svg.polyline([points[i] for i in unbeaten], class_="front"),
        *(_place(entry, x, y, looks[entry.label], i in unbeaten, taken) for i, entry in enumerate(known)),
        title=title,
        class_="plane",
    )
    spread = " Bars: one standard deviation over seeds." if len(section.seeds) > 1 else ""
    return Plot("pareto", title, drawing, f"The line joins the methods that no other one beats in both.{spread}")


def pareto(points: Iterable[tuple[float, float]], better: str) -> list[int]:
    """Which points (ratio, metric) no other point beats in both, from the smallest ratio to the largest."""
    sign = 1 if better == "higher" else -1
    found = [(ratio, sign * metric, i) for i, (ratio, metric) in enumerate(points)]
    found = [point for point in found if isfinite(point[0]) and isfinite(point[1])]

    def beaten(one: tuple[float, float, int]) -> bool:
        return any(
            other[0] >= one[0] and other[1] >= one[1] and (other[0] > one[0] or other[1] > one[1]) for other in found
        )

    return [i for _, _, i in sorted(point for point in found if not beaten(point))]


def _axes(known: list[Entry]) -> tuple[Axis, Axis]:
    ends = [entry.metric.mean + side * (entry.metric.spread or 0.0) for entry in known for side in (-1, 1)]
    ratios = [entry.ratio.mean for entry in known]
    return (
        Axis(*svg.padded_log(ratios or [1.0, 10.0], 0.12), LEFT, WIDTH - 14, log=True),
        Axis(*svg.padded(ends or [0.0, 1.0], 0.12), HEIGHT - BOTTOM, TOP),
    )


def _place(entry: Entry, x: Axis, y: Axis, look: Look, unbeaten: bool, taken: list[Box]) -> str:
    left, top = x.at(entry.ratio.mean), y.at(entry.metric.mean)
    spread = entry.metric.spread or 0.0
    bar = f"M{left:.1f} {y.at(entry.metric.mean - spread):.1f}V{y.at(entry.metric.mean + spread):.1f}"
    metric = units.metric_text(entry.runs[0].metric, entry.metric.mean, entry.metric.spread)
    label = svg.shortened(entry.label, 18)
    beyond = -1 if entry.runs[0].better == "higher" else 1
    at, height, anchor = _aside(left, top, svg.LETTER * len(label), beyond, taken)
    return tag(
        "g",
        tag("title", escape(f"{entry.label}: {entry.ratio.mean:.1f}x smaller, {metric}")),
        tag("path", d=bar, class_="spread"),
        tag("circle", cx=f"{left:.1f}", cy=f"{top:.1f}", r=5.5, class_="place unbeaten" if unbeaten else "place"),
        words(label, at, height, text_anchor=anchor, class_="label"),
        class_="series",
        data_series=entry.label,
        style=f"--c:{look.css}",
    )


def _aside(left: float, top: float, width: float, beyond: int, taken: list[Box]) -> tuple[float, float, str]:
    """A place for a name beside its point where it covers nothing; if there is none, where it is not cut off."""
    for side, up in ASIDE:
        start = left + (9 if side > 0 else -9 - width if side < 0 else -width / 2)
        base = top + 4.5 + beyond * up
        box = (start, base - 11, start + width, base + 3)
        inside = box[0] > LEFT and box[1] > TOP - 8 and box[2] < WIDTH and box[3] < HEIGHT - BOTTOM
        if inside and not any(_overlap(box, other) for other in taken):
            taken.append(box)
            return (
                (start, base, "start") if side > 0 else (start + width, base, "end") if side else (left, base, "middle")
            )
    return (left + 9, top + 4.5, "start") if left + 9 + width < WIDTH else (left - 9, top + 4.5, "end")


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
