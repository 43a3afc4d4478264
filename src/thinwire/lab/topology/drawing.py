"""A graph in the terminal."""

from collections.abc import Callable, Iterator
from math import hypot

from rich.text import Text

from thinwire import extend
from thinwire.lab.topology.braille import ACROSS, DOWN, Canvas
from thinwire.lab.topology.coordinates import Layout, Point, layout_of

MOST_RANKS, MOST_EDGES = 32, 150  # the most that stay readable
WIDEST = 76  # columns of a grid at most
ROOM = 6  # columns beside a circle, and a line above and below, for the labels


def drawing(topology: extend.Topology, graph: extend.Graph) -> Iterator[Text]:
    """Draw a graph, line by line."""
    layout = layout_of(topology, graph.size)
    drawn = _grid(graph, layout, *layout.grid) if layout.grid else _circle(graph, layout)
    yield from drawn.shown()
    if layout.grid and max(layout.grid) > 2:
        yield Text()
        yield Text("Lines that leave the grid wrap around to the other side.")


def _grid(graph: extend.Graph, layout: Layout, rows: int, columns: int) -> Canvas:
    """Draw ranks where lines cross."""
    across, down = min(8, WIDEST // columns), 4 if columns <= 8 else 3  # characters of a step
    canvas = Canvas(columns * across, rows * down)

    def at(point: Point) -> Point:
        return ACROSS * (point[0] * across + across // 2), DOWN * (point[1] * down + down // 2) + 1

    _lines(canvas, graph, layout, at)
    for rank, (column, row) in enumerate(layout.points):
        label = str(rank)
        first = int(column) * across + across // 2 - len(label) // 2
        canvas.label(label, int(row) * down + down // 2, first, room=int(across > 5))
    return canvas


def _circle(graph: extend.Graph, layout: Layout) -> Canvas:
    """Draw labels outside the circle, and a hub's label over its lines."""
    radius = DOWN * round(3 if graph.size == 2 else 4.5 + 0.25 * graph.size)  # in dots, which are as wide as high
    middle = (radius + ROOM * ACROSS, radius + DOWN + 1)  # and in the middle of a line
    canvas = Canvas(2 * middle[0] // ACROSS + 1, 2 * middle[1] // DOWN + 1)

    def at(point: Point) -> Point:
        return middle[0] + radius * point[0], middle[1] + radius * point[1]

    _lines(canvas, graph, layout, at)
    for rank, point in enumerate(layout.points):
        label, (x, y) = str(rank), at(point)
        outside = hypot(*point) > 0.5
        center = x // ACROSS + 0.5 + point[0] * (1.5 + len(label) / 2)
        row, column = int((y + DOWN * point[1]) // DOWN), round(center - len(label) / 2)
        canvas.label(label, row, column, room=int(not outside))
    return canvas


def _lines(canvas: Canvas, graph: extend.Graph, layout: Layout, at: Callable[[Point], Point]) -> None:
    for edge in graph.edges:
        for start, end in layout.segments(*edge):
            canvas.line(at(start), at(end))
