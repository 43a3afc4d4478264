"""Labels of lines: above or below the plot at the ends of the lines, or in a column on its right."""

from collections.abc import Iterable

from thinwire.lab.report.charts import svg
from thinwire.lab.report.charts.svg import Point, tag, words

MOST_LETTERS = 16
LINE = 15  # height of a label
MOST_ROWS = 5  # of labels above or below the plot


def shown(label: str) -> str:
    return svg.shortened(label, MOST_LETTERS)


def width(label: str) -> float:
    return svg.LETTER * len(shown(label)) + 6


def rows(ends: list[tuple[float, str]]) -> list[int]:
    """The row of each label (0 is next to the plot), so that no label covers another or its lead line."""
    chosen: dict[int, int] = {}
    for here in sorted(range(len(ends)), key=lambda i: -ends[i][0]):
        start, label = ends[here]
        covered = [row for there, row in chosen.items() if ends[there][0] < start + width(label)]
        chosen[here] = 1 + max(covered, default=-1)
    return [chosen[here] for here in range(len(ends))]


def beyond(ends: dict[str, Point], colors: dict[str, str], edge: float, up: bool) -> Iterable[str]:
    """Labels above (or below) an edge of the plot, each at the end of its line."""
    found = rows([(x, label) for label, (x, _) in ends.items()])
    for (label, (x, y)), row in zip(ends.items(), found, strict=True):
        height = edge - 6 - LINE * row if up else edge + 15 + LINE * row
        lead = f"M{x:.1f} {y:.1f}V{height - 10 if up else height + 2:.1f}"
        start = min(x + 4, svg.WIDTH - width(label))
        yield _name(label, colors[label], lead, start, height)


def beside(ends: dict[str, Point], colors: dict[str, str], top: float, bottom: float, edge: float) -> Iterable[str]:
    """Labels in a column on the right, each as near to the end of its line as the others allow."""
    heights = svg.spaced([y for _, y in ends.values()], LINE, top + 4, bottom - 4)
    for (label, (x, y)), height in zip(ends.items(), heights, strict=True):
        lead = f"M{x + 3:.1f} {y:.1f}L{edge + 6:.1f} {height:.1f}h4"
        yield _name(label, colors[label], lead, edge + 13, height + 4.5)


def _name(label: str, color: str, lead: str, x: float, y: float) -> str:
    return tag(
        "g",
        tag("path", class_="lead", d=lead),
        words(shown(label), x, y, class_="label"),
        class_="series",
        data_series=label,
        style=f"--c:{color}",
    )
