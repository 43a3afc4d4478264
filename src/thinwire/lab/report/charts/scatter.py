"""Points in a plane, with their names where these cover nothing."""

from collections.abc import Iterable
from html import escape
from math import isfinite
from typing import NamedTuple

from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, tag, words

Box = tuple[float, float, float, float]  # left, top, right, bottom
# Where a name may be, seen from its point: on which side, and how far up; first beyond the front, then behind it.
ASIDE = ((1, 8), (0, 14), (1, -3), (-1, 8), (-1, -3), (-1, -12), (0, -20), (1, -14), (1, 24), (-1, -26))
LETTERS = 18  # of a name


class Dot(NamedTuple):
    label: str
    x: float
    y: float
    told: str  # when it is pointed at
    look: Look
    spread: float = 0.0  # of y, on either side


def pareto(points: Iterable[tuple[float, float]], better: str) -> list[int]:
    """Which points no other point beats in both, from the smallest x to the largest: x is better if it is higher."""
    sign = 1 if better == "higher" else -1
    found = [(x, sign * y, i) for i, (x, y) in enumerate(points)]
    found = [point for point in found if isfinite(point[0]) and isfinite(point[1])]

    def beaten(one: tuple[float, float, int]) -> bool:
        return any(
            other[0] >= one[0] and other[1] >= one[1] and (other[0] > one[0] or other[1] > one[1]) for other in found
        )

    return [i for _, _, i in sorted(point for point in found if not beaten(point))]


def scattered(dots: list[Dot], x: Axis, y: Axis, unbeaten: list[int], beyond: int) -> list[str]:
    """The line that joins those that nothing beats, and all of them; names are beyond that line (-1: above it)."""
    points = [(x.at(dot.x), y.at(dot.y)) for dot in dots]
    taken = [(left - 6, top - 6, left + 6, top + 6) for left, top in points]
    line = svg.polyline([points[i] for i in unbeaten], class_="front")
    return [line, *(_placed(dot, x, y, i in unbeaten, beyond, taken) for i, dot in enumerate(dots))]


def _placed(dot: Dot, x: Axis, y: Axis, unbeaten: bool, beyond: int, taken: list[Box]) -> str:
    left, top = x.at(dot.x), y.at(dot.y)
    drawn = [tag("title", escape(dot.told))]
    if dot.spread or not y.log:
        bar = f"M{left:.1f} {y.at(dot.y - dot.spread):.1f}V{y.at(dot.y + dot.spread):.1f}"
        drawn.append(tag("path", d=bar, class_="spread"))
    drawn.append(
        tag("circle", cx=f"{left:.1f}", cy=f"{top:.1f}", r=5.5, class_="place unbeaten" if unbeaten else "place")
    )
    label = svg.shortened(dot.label, LETTERS)
    at, height, anchor = _aside(left, top, svg.LETTER * len(label), beyond, taken)
    drawn.append(words(label, at, height, text_anchor=anchor, class_="label"))
    return tag("g", *drawn, class_="series", data_series=dot.label, style=f"--c:{dot.look.css}")


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
