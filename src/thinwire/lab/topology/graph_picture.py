"""A graph as a picture, for light paper and dark screens."""

from collections.abc import Iterator
from html import escape
from math import hypot
from pathlib import Path

from thinwire.lab.report.charts.style import HUES, INK
from thinwire.lab.report.charts.svg import tag, words
from thinwire.lab.report.number_format import counted
from thinwire.lab.topology.coordinates import Layout, Point, Segment, layout_of
from thinwire.lab.topology.figures import Described

MOST_EDGES = 5_000  # of a picture
NODE = 15  # the radius of a rank
BOW = 0.12  # of a line's length
GRID_STEP = 84
MARGIN, CAPTION, LINE = 40, 62, 22  # around, for the title above, for the rounds below
NARROWEST = 360  # wide enough for the titles
PAPER = ("#ffffff", "#0d1117")
STYLE = (
    "text{font:14px -apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:var(--ink)}"
    ".title{font-size:17px;font-weight:600}.rank{font-size:13px;font-weight:600;text-anchor:middle}"
    ".paper,.node{fill:var(--paper)}.node{stroke:var(--ink);stroke-width:1.6}"
    "path{fill:none;stroke-width:1.8;stroke-linecap:round}"
)


def write(described: Described, path: Path) -> None:
    edges = len(described.graph.edges)
    if edges > MOST_EDGES:
        raise ValueError(f"a picture of {edges:,} edges would be unreadable; at most {MOST_EDGES:,} are drawn")
    try:
        path.write_text(picture(described), "utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from None


def picture(described: Described) -> str:
    layout = layout_of(described.topology, described.graph.size)
    where = _spread(layout, described.graph.size)
    left, right = min(x for x, _ in where.points), max(x for x, _ in where.points)
    top, bottom = min(y for _, y in where.points), max(y for _, y in where.points)
    around = MARGIN + (GRID_STEP // 2 if layout.grid else NODE)
    width = max(right - left + 2 * around, NARROWEST)
    legend = len(described.graph.phases) if described.graph.varies else 0
    height = bottom - top + 2 * around + CAPTION + LINE * legend
    moved = f"translate({width / 2 - (left + right) / 2:.1f} {CAPTION + around - top:.1f})"
    return tag(
        "svg",
        tag("title", escape(described.title)),
        tag("style", _colors(), STYLE),
        tag("defs", *(_arrow(hue) for hue in range(len(HUES)))),
        tag("rect", class_="paper", width="100%", height="100%"),
        words(described.title, 20, 32, class_="title"),
        words(_summary(described), 20, 54),
        tag("g", *_edges(described, where), *_nodes(where), transform=moved),
        *_legend(described, height),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        aria_label=described.title,
    )


def _spread(layout: Layout, size: int) -> Layout:
    scale = GRID_STEP if layout.grid else max(110, size * 3.4 * NODE / 6.28)
    return Layout(tuple((x * scale, y * scale) for x, y in layout.points), layout.grid, scale)


def _colors() -> str:
    def variables(dark: bool) -> str:
        hues = "".join(f"--m{i}:{pair[dark]};" for i, pair in enumerate(HUES))
        return f":root{{--ink:{INK[dark]};--paper:{PAPER[dark]};{hues}}}"

    return f"{variables(dark=False)}@media (prefers-color-scheme:dark){{{variables(dark=True)}}}"


def _arrow(hue: int) -> str:
    head = tag("polygon", points="0,0 8,4 0,8", fill=f"var(--m{hue})")
    box = {"viewBox": "0 0 8 8", "refX": 7, "refY": 4, "markerWidth": 9, "markerHeight": 9}
    return tag("marker", head, id=f"m{hue}", orient="auto-start-reverse", markerUnits="userSpaceOnUse", **box)


def _edges(described: Described, where: Layout) -> Iterator[str]:
    """Each in the color of the first round that has it; arrows if the graph is directed."""
    drawn: set[tuple[int, int]] = set()
    for number, edges in enumerate(described.edges_by_round()):
        there, hue = set(edges), f"m{number % len(HUES)}"
        for i, j in edges:
            both = (j, i) in there
            if (i, j) in drawn or (both and (j, i) in drawn):
                continue
            arrows = {} if described.graph.symmetric else {"marker_end": f"url(#{hue})"}
            if both:
                arrows["marker_start"] = f"url(#{hue})"
            bow = BOW * ((j, i) in drawn)  # another round has the edge back as a straight line
            drawn.add((i, j))
            for segment in where.segments(i, j):
                yield tag("path", d=_path(_shortened(segment, where.points), bow), stroke=f"var(--{hue})", **arrows)


def _path(segment: Segment, bow: float) -> str:
    (x1, y1), (x2, y2) = segment
    bend = f"Q{(x1 + x2) / 2 + bow * (y1 - y2):.1f} {(y1 + y2) / 2 + bow * (x2 - x1):.1f} " if bow else "L"
    return f"M{x1:.1f} {y1:.1f}{bend}{x2:.1f} {y2:.1f}"


def _shortened(segment: Segment, points: tuple[Point, ...]) -> Segment:
    """Shorten a line so that it ends beside the ranks, not under them."""
    (x1, y1), (x2, y2) = segment
    long = hypot(x2 - x1, y2 - y1) or 1
    across, down = (x2 - x1) / long * (NODE + 3), (y2 - y1) / long * (NODE + 3)
    start = (x1 + across, y1 + down) if segment[0] in points else segment[0]
    end = (x2 - across, y2 - down) if segment[1] in points else segment[1]
    return start, end


def _nodes(where: Layout) -> Iterator[str]:
    for rank, (x, y) in enumerate(where.points):
        yield tag("circle", class_="node", cx=f"{x:.1f}", cy=f"{y:.1f}", r=NODE)
        yield words(str(rank), x, y + 4.5, class_="rank")


def _summary(described: Described) -> str:
    settled = "" if described.rounds is None else f", {counted(described.rounds, 'round')} to 1/1000"
    return f"spectral gap {described.graph.spectral_gap:.4g}{settled}"


def _legend(described: Described, height: float) -> Iterator[str]:
    if not described.graph.varies:
        return
    lines = described.round_texts()
    for number, text in enumerate(lines):
        y = height - LINE * (len(lines) - number) - 4
        yield tag("path", d=_path(((20, y - 5), (44, y - 5)), 0), stroke=f"var(--m{number % len(HUES)})")
        yield words(f"round {number + 1}: {text}", 54, y)
