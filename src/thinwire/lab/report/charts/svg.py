"""SVG elements, axes with round ticks, and the frame of a plot."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from itertools import chain, pairwise
from math import ceil, floor, isfinite, log10

WIDTH, HEIGHT = 480, 320  # small enough that text stays readable on a phone
LEFT, TOP, BOTTOM = 58, 24, 48  # margins
LETTER = 8.6  # width of a bold character in the widest font of the page
CLOCK = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)  # tick steps in seconds that are round in minutes or hours

Point = tuple[float, float]


def tag(name: str, *inside: str, **attributes: object) -> str:
    """An element. Children are markup, attribute values are text; `class_` stands for class, `data_x` for data-x."""
    pairs = "".join(f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return f"<{name}{pairs}>{''.join(inside)}</{name}>"


def words(text: str, x: float, y: float, **attributes: object) -> str:
    return tag("text", escape(text), x=f"{x:.1f}", y=f"{y:.1f}", **attributes)


def polyline(points: Iterable[Point], **attributes: object) -> str:
    return tag("polyline", points=" ".join(f"{x:.2f},{y:.2f}" for x, y in points), **attributes)


def shortened(label: str, letters: int) -> str:
    return label if len(label) <= letters else label[: letters - 1] + "…"


@dataclass(frozen=True)
class Axis:
    """Maps values from low..high to coordinates start..end."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    unit: str = "number"  # how page.js formats a value: a key of its `units`

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = log10(low), log10(high), log10(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def shows(self, value: float) -> bool:
        return isfinite(value) and (value > 0 or not self.log)

    def ticks(self) -> list[float]:
        if self.log and self.high / self.low >= 4:
            return _decades(self.low, self.high)
        return _round(self.low, self.high, CLOCK if self.unit == "seconds" and self.high >= 4 * CLOCK[0] else ())

    def as_json(self) -> str:
        values = (self.low, self.high, self.start, self.end, self.log, self.unit)
        return json.dumps(dict(zip(("low", "high", "start", "end", "log", "unit"), values, strict=True)))


def _decades(low: float, high: float) -> list[float]:
    first, last = floor(log10(low)), ceil(log10(high))
    every = ceil((last - first) / 6)
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    powers = range(first, last + 1, every)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def _round(low: float, high: float, preferred: Iterable[float]) -> list[float]:
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    round_steps = (power * factor for factor in (1, 2, 2.5, 5, 10))
    step = next(step for step in chain(preferred, round_steps) if rough <= step <= 2.5 * rough)
    return [step * i for i in range(ceil(low / step), floor(high / step) + 1)]


def padded(values: Iterable[float], share: float = 0.06) -> Point:
    """The range of the values, with a margin on both sides."""
    known = list(values)
    low, high = min(known), max(known)
    margin = (high - low) * share or abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def padded_log(values: Iterable[float], share: float = 0.06) -> Point:
    low, high = padded((log10(value) for value in values), share)
    return 10**low, 10**high


def frame(
    x: Axis,
    y: Axis,
    x_name: str,
    y_name: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    bottom: float | None = None,
) -> str:
    """Grid, ticks and names of the axes; `bottom` defaults to the start of the y axis."""
    bottom = y.start if bottom is None else bottom
    elements = []
    for value in x.ticks():
        at = x.at(value)
        elements.append(tag("line", class_="grid", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=y.end, y2=bottom))
        elements.append(words(x_text(value), at, bottom + 18, class_="tick", text_anchor="middle"))
    for value in y.ticks():
        at = y.at(value)
        elements.append(tag("line", class_="grid", x1=x.start, x2=x.end, y1=f"{at:.1f}", y2=f"{at:.1f}"))
        elements.append(words(y_text(value), x.start - 7, at + 4, class_="tick", text_anchor="end"))
    elements.append(tag("line", class_="axis", x1=x.start, x2=x.end, y1=bottom, y2=bottom))
    elements.append(words(x_name, (x.start + x.end) / 2, bottom + 39, class_="name", text_anchor="middle"))
    elements.append(words(y_name, 0, 12, class_="name"))
    return tag("g", *elements)


def picture(*inside: str, title: str, height: float = HEIGHT, **attributes: object) -> str:
    return tag(
        "svg",
        tag("title", escape(title)),
        *inside,
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="img",
        aria_label=title,
        **attributes,
    )


def spaced(positions: list[float], gap: float, low: float, high: float) -> list[float]:
    """The positions in the same order, moved as little as needed for a gap between neighbors within low..high."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    gap = min(gap, (high - low) / max(1, len(positions) - 1))
    moved = [min(max(position, low), high) for position in positions]
    for before, here in pairwise(order):
        moved[here] = max(moved[here], moved[before] + gap)
    limit = high
    for here in reversed(order):
        moved[here] = min(moved[here], limit)
        limit = moved[here] - gap
    return moved
