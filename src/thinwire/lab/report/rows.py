"""Plots with a row for each method: its name, what is drawn for it, a figure after it."""

from collections.abc import Callable, Iterable
from html import escape

from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.style import Look
from thinwire.lab.report.charts.svg import BOTTOM, Axis, tag, words

ROW, BAR = 30, 18  # heights
LETTERS = 15  # of a name
FIGURE = 74  # how wide the one after a bar is


def left(labels: Iterable[str]) -> float:
    return 14 + svg.LETTER * min(LETTERS, max(map(len, labels)))


def top(row: int) -> float:
    return 8 + ROW * row


def picture(drawn: list[str], count: int, title: str) -> str:
    return svg.picture(*drawn, title=title, height=top(count) + BOTTOM, class_="bars")


def grid(scale: Axis, count: int, say: Callable[[float], str], name: str) -> str:
    drawn, bottom = [], top(count)
    for value in scale.ticks():
        at = scale.at(value)
        drawn.append(tag("line", class_="grid", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=4, y2=bottom))
        drawn.append(words(say(value), at, bottom + 16, class_="tick", text_anchor="middle"))
    drawn.append(words(name, (scale.start + scale.end) / 2, bottom + 37, class_="name", text_anchor="middle"))
    return tag("g", *drawn)


def piece(scale: Axis, start: float, end: float, row: int, color: str, said: str, inside: str = "") -> str:
    left, right = scale.at(start), scale.at(end)
    box = tag(
        "rect",
        tag("title", escape(said)),
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


def figure(said: str, after: float, row: int) -> str:
    return words(said, after + 7, middle(row), class_="value")


def row(label: str, number: int, looks: dict[str, Look], scale: Axis, pieces: list[str]) -> str:
    name = words(svg.shortened(label, LETTERS), scale.start - 8, middle(number), class_="label", text_anchor="end")
    return tag("g", name, *pieces, class_="series", data_series=label, style=f"--c:{looks[label].css}")


def middle(row: int) -> float:
    return top(row) + ROW / 2 + 4.5  # the base of letters that are centered


def _is_light(color: str) -> bool:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140
