"""Scatter plots, with labels that do not cover points or other labels."""

from collections.abc import Iterable
from html import escape
from math import isfinite
from typing import NamedTuple

from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, tag, words

Box = tuple[float, float, float, float]  # left, top, right, bottom
# Positions of a label to try, relative to its point: side and height; first beyond the Pareto front, then behind it.
OFFSETS = ((1, 8), (0, 14), (1, -3), (-1, 8), (-1, -3), (-1, -12), (0, -20), (1, -14), (1, 24), (-1, -26))
LETTERS = 18  # characters of a label


class Dot(NamedTuple):
    label: str
    x: float
    y: float
    tooltip: str
    look: Look
    spread: float = 0.0  # half the length of the error bar of y


def pareto(points: Iterable[tuple[float, float]], better: str) -> list[int]:
    """The indices of the points on the Pareto front, by increasing x. A higher x is better."""
    sign = 1 if better == "higher" else -1
    found = [(x, sign * y, i) for i, (x, y) in enumerate(points)]
    found = [point for point in found if isfinite(point[0]) and isfinite(point[1])]

    def dominated(one: tuple[float, float, int]) -> bool:
        return any(
            other[0] >= one[0] and other[1] >= one[1] and (other[0] > one[0] or other[1] > one[1]) for other in found
        )

    return [i for _, _, i in sorted(point for point in found if not dominated(point))]


def scattered(dots: list[Dot], x: Axis, y: Axis, on_front: list[int], beyond: int) -> list[str]:
    """The line of the Pareto front, and all points; labels are beyond the front (-1: above it, 1: below it)."""
    points = [(x.at(dot.x), y.at(dot.y)) for dot in dots]
    occupied = [(left - 6, top - 6, left + 6, top + 6) for left, top in points]
    line = svg.polyline([points[i] for i in on_front], class_="front")
    return [line, *(_point(dot, x, y, i in on_front, beyond, occupied) for i, dot in enumerate(dots))]


def _point(dot: Dot, x: Axis, y: Axis, on_front: bool, beyond: int, occupied: list[Box]) -> str:
    left, top = x.at(dot.x), y.at(dot.y)
    elements = [tag("title", escape(dot.tooltip))]
    if dot.spread or not y.log:
        bar = f"M{left:.1f} {y.at(dot.y - dot.spread):.1f}V{y.at(dot.y + dot.spread):.1f}"
        elements.append(tag("path", d=bar, class_="spread"))
    elements.append(
        tag("circle", cx=f"{left:.1f}", cy=f"{top:.1f}", r=5.5, class_="point on-front" if on_front else "point")
    )
    label = svg.shortened(dot.label, LETTERS)
    at, height, anchor = _label_position(left, top, svg.LETTER * len(label), beyond, occupied)
    elements.append(words(label, at, height, text_anchor=anchor, class_="label"))
    return tag("g", *elements, class_="series", data_series=dot.label, style=f"--c:{dot.look.css}")


def _label_position(
    left: float, top: float, width: float, beyond: int, occupied: list[Box]
) -> tuple[float, float, str]:
    """A free position for a label next to its point; if there is none, one where it is not clipped."""
    for side, up in OFFSETS:
        start = left + (9 if side > 0 else -9 - width if side < 0 else -width / 2)
        base = top + 4.5 + beyond * up
        box = (start, base - 11, start + width, base + 3)
        inside = box[0] > LEFT and box[1] > TOP - 8 and box[2] < WIDTH and box[3] < HEIGHT - BOTTOM
        if inside and not any(_overlap(box, other) for other in occupied):
            occupied.append(box)
            return (
                (start, base, "start") if side > 0 else (start + width, base, "end") if side else (left, base, "middle")
            )
    return (left + 9, top + 4.5, "start") if left + 9 + width < WIDTH else (left - 9, top + 4.5, "end")


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
