"""Plots with one row per method: its label, its marks, and a figure on the right."""

from collections.abc import Callable, Iterable
from html import escape

from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, Axis, tag, words

ROW, BAR = 30, 18  # heights
LETTERS = 15  # characters of a label
FIGURE = 74  # width of the figure to the right of a bar


def left(labels: Iterable[str]) -> float:
    return 14 + svg.LETTER * min(LETTERS, max(map(len, labels)))


def top(row: int) -> float:
    return 8 + ROW * row


def picture(elements: list[str], count: int, title: str) -> str:
    return svg.picture(*elements, title=title, height=top(count) + BOTTOM, class_="bars")


def grid(scale: Axis, count: int, text: Callable[[float], str], name: str) -> str:
    elements, bottom = [], top(count)
    for value in scale.ticks():
        at = scale.at(value)
        elements.append(tag("line", class_="grid", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=4, y2=bottom))
        elements.append(words(text(value), at, bottom + 16, class_="tick", text_anchor="middle"))
    elements.append(words(name, (scale.start + scale.end) / 2, bottom + 37, class_="name", text_anchor="middle"))
    return tag("g", *elements)


def piece(scale: Axis, start: float, end: float, row: int, color: str, tooltip: str, inside: str = "") -> str:
    left, right = scale.at(start), scale.at(end)
    box = tag(
        "rect",
        tag("title", escape(tooltip)),
        x=f"{left:.2f}",
        y=top(row) + (ROW - BAR) / 2,
        width=f"{right - left:.2f}",
        height=BAR,
        fill=color,
    )
    if not inside or right - left < svg.LETTER * len(inside) + 6:
        return box
    shade = "on-light" if _is_light(color) else "on-dark"
    return box + words(inside, (left + right) / 2, middle(row), class_=f"inside {shade}", text_anchor="middle")


def figure(text: str, after: float, row: int) -> str:
    return words(text, after + 7, middle(row), class_="value")


def row(label: str, number: int, looks: dict[str, Look], scale: Axis, pieces: list[str]) -> str:
    name = words(svg.shortened(label, LETTERS), scale.start - 8, middle(number), class_="label", text_anchor="end")
    return tag("g", name, *pieces, class_="series", data_series=label, style=f"--c:{looks[label].css}")


def middle(row: int) -> float:
    return top(row) + ROW / 2 + 4.5  # the baseline of vertically centered text


def _is_light(color: str) -> bool:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140
