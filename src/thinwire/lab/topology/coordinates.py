"""The coordinates of ranks in a drawing: a circle, a star around its hub, or the grid of a torus."""

from dataclasses import dataclass
from math import copysign, cos, pi, sin

import thinwire
from thinwire import extend

Point = tuple[float, float]  # right and down
Segment = tuple[Point, Point]


@dataclass(frozen=True)
class Layout:
    points: tuple[Point, ...]  # by rank; on a circle around (0, 0) of radius 1, or a step of the grid apart
    grid: tuple[int, int] | None = None  # its rows and columns
    step: float = 1  # between the lines of a grid

    def segments(self, start: int, end: int) -> list[Segment]:
        """The lines of an edge: one, or two short ones if it wraps around the grid."""
        a, b = self.points[start], self.points[end]
        across, down = b[0] - a[0], b[1] - a[1]
        if self.grid is None or abs(across) + abs(down) <= self.step:
            return [(a, b)]
        half = self.step / 2
        out = (-copysign(half, across) if across else 0, -copysign(half, down) if down else 0)
        return [(a, (a[0] + out[0], a[1] + out[1])), ((b[0] - out[0], b[1] - out[1]), b)]


def layout_of(topology: extend.Topology, size: int) -> Layout:
    if isinstance(topology, thinwire.Torus) and min(topology.sides(size)) > 1:
        rows, columns = topology.sides(size)
        return Layout(tuple((rank % columns, rank // columns) for rank in range(size)), (rows, columns))
    if isinstance(topology, thinwire.Star) and size > 2:
        return Layout(((0, 0), *_circle(size - 1)))
    return Layout(_circle(size))


def _circle(size: int) -> tuple[Point, ...]:
    """Clockwise from the top; two ranks stand side by side."""
    turns = [rank / size - 0.25 * (size == 2) for rank in range(size)]
    return tuple((round(sin(2 * pi * turn), 9), round(-cos(2 * pi * turn), 9)) for turn in turns)
