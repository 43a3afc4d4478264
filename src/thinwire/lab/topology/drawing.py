"""A graph in the terminal."""

from collections.abc import Callable, Iterator
from math import hypot

from rich.text import Text

import thinwire
from thinwire.lab.topology.braille import ACROSS, DOWN, Canvas
from thinwire.lab.topology.coordinates import LeaderPositions, Point, places

MOST_RANKS, MOST_EDGES = 32, 150  # that can be told apart
WIDEST = 76  # columns that a grid may take
ROOM = 6  # columns beside a circle, and a line above and below, for the labels


def drawing(topology: thinwire.Topology, graph: thinwire.Graph) -> Iterator[Text]:
    """Line by line."""
    placed = places(topology, graph.size)
    drawn = _grid(graph, placed, *placed.grid) if placed.grid else _circle(graph, placed)
    yield from drawn.shown()
    if placed.grid and max(placed.grid) > 2:
        yield Text()
        yield Text("Lines that leave the grid come back on the other side.")


def _grid(graph: thinwire.Graph, placed: LeaderPositions, rows: int, columns: int) -> Canvas:
    """Ranks stand where lines cross."""
    across, down = min(8, WIDEST // columns), 4 if columns <= 8 else 3  # characters of a step
    canvas = Canvas(columns * across, rows * down)

    def at(point: Point) -> Point:
        return ACROSS * (point[0] * across + across // 2), DOWN * (point[1] * down + down // 2) + 1

    _lines(canvas, graph, placed, at)
    for rank, (column, row) in enumerate(placed.points):
        label = str(rank)
        first = int(column) * across + across // 2 - len(label) // 2
        canvas.label(label, int(row) * down + down // 2, first, room=int(across > 5))
    return canvas


def _circle(graph: thinwire.Graph, placed: LeaderPositions) -> Canvas:
    """Labels stand outside, so that lines are seen from end to end; that of a hub stands over its lines."""
    radius = DOWN * round(3 if graph.size == 2 else 4.5 + 0.25 * graph.size)  # in dots, which are as wide as high
    middle = (radius + ROOM * ACROSS, radius + DOWN + 1)  # and in the middle of a line
    canvas = Canvas(2 * middle[0] // ACROSS + 1, 2 * middle[1] // DOWN + 1)

    def at(point: Point) -> Point:
        return middle[0] + radius * point[0], middle[1] + radius * point[1]

    _lines(canvas, graph, placed, at)
    for rank, point in enumerate(placed.points):
        label, (x, y) = str(rank), at(point)
        outside = hypot(*point) > 0.5
        center = x // ACROSS + 0.5 + point[0] * (1.5 + len(label) / 2)
        row, column = int((y + DOWN * point[1]) // DOWN), round(center - len(label) / 2)
        canvas.label(label, row, column, room=int(not outside))
    return canvas


def _lines(canvas: Canvas, graph: thinwire.Graph, placed: LeaderPositions, at: Callable[[Point], Point]) -> None:
    for edge in graph.edges:
        for start, end in placed.segments(*edge):
            canvas.line(at(start), at(end))
