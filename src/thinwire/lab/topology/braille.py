"""Lines in a terminal: every character is a field of 2 by 4 dots."""

from collections.abc import Iterable
from math import ceil

from rich.text import Text

ACROSS, DOWN = 2, 4  # dots of a character
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # their bits, by row and column
BLANK = 0x2800
LINES, LABELS = "cyan", "bold"

Dot = tuple[float, float]  # right and down from the upper left corner


class Canvas:
    """A grid of characters, with lines and labels over them."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[0] * columns for _ in range(rows)]
        self.labels: dict[tuple[int, int], str] = {}  # letters, by row and column

    def line(self, start: Dot, end: Dot) -> None:
        steps = max(1, ceil(max(abs(end[0] - start[0]), abs(end[1] - start[1]))))
        for step in range(steps + 1):
            self._dot(*(round(a + (b - a) * step / steps) for a, b in zip(start, end, strict=True)))

    def label(self, text: str, row: int, column: int, room: int = 0) -> None:
        """Write a label at a character, with `room` blanks on both sides."""
        for position, letter in enumerate(" " * room + text + " " * room, start=column - room):
            self.labels[row, position] = letter

    def shown(self) -> list[Text]:
        """Its lines, without the empty ones at the top and the bottom."""
        lines = [self._row(row) for row in range(self.rows)]
        full = [row for row, line in enumerate(lines) if line.plain]
        return lines[full[0] : full[-1] + 1] if full else []

    def _row(self, row: int) -> Text:
        letters: Iterable[tuple[str, str]] = (
            (label, LABELS)
            if (label := self.labels.get((row, column)))
            else (chr(BLANK + dots) if dots else " ", LINES)
            for column, dots in enumerate(self.cells[row])
        )
        line = Text.assemble(*letters)
        line.rstrip()
        return line

    def _dot(self, x: int, y: int) -> None:
        if 0 <= x < self.columns * ACROSS and 0 <= y < self.rows * DOWN:
            self.cells[y // DOWN][x // ACROSS] |= DOTS[y % DOWN][x % ACROSS]
