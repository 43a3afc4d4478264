import re

import pytest
from rich.text import Text

import thinwire
from thinwire import Complete, Edges, Exponential, Hypercube, RandomRegular, Ring, Star, Torus
from thinwire.extend import Topology
from thinwire.lab.topology import braille
from thinwire.lab.topology.braille import Canvas
from thinwire.lab.topology.coordinates import layout_of
from thinwire.lab.topology.drawing import MOST_RANKS, drawing

KINDS = [Ring(), Torus(), Star(), Complete(), Exponential(), RandomRegular(4), Hypercube()]


def drawn(topology: Topology, ranks: int) -> list[str]:
    lines = [line.plain for line in drawing(topology, topology.of(ranks))]
    return lines[: lines.index("")] if "" in lines else lines


def test_lines_are_dots_of_a_character() -> None:
    canvas = Canvas(3, 2)
    canvas.line((0, 0), (5, 0))
    canvas.line((0, 4), (0, 7))
    assert [line.plain for line in canvas.shown()] == ["⠉⠉⠉", "⡇"]


def test_a_line_from_corner_to_corner_has_all_its_dots() -> None:
    canvas = Canvas(4, 2)
    canvas.line((0, 0), (7, 7))
    assert [line.plain for line in canvas.shown()] == ["⠑⢄", "  ⠑⢄"]


def test_a_label_is_drawn_over_lines_with_optional_room() -> None:
    canvas = Canvas(6, 3)
    canvas.line((0, 5), (11, 5))
    canvas.label("7", 1, 3, room=1)
    (line,) = canvas.shown()
    assert line.plain == "⠒⠒ 7 ⠒"
    assert {span.style for span in line.spans} == {braille.LINES, braille.LABELS}


def test_dots_outside_the_canvas_are_ignored() -> None:
    canvas = Canvas(2, 2)
    canvas.line((-5, -5), (-1, -1))
    canvas.line((9, 9), (20, 20))
    assert canvas.shown() == []


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 13, 16, 22, 26, MOST_RANKS])
def test_every_rank_is_drawn_once_within_80_columns(kind: Topology, ranks: int) -> None:
    if isinstance(kind, Hypercube) and ranks & (ranks - 1):
        return
    lines = drawn(kind, ranks)
    labels = re.findall(r"\d+", "\n".join(lines))
    assert sorted(map(int, labels)) == list(range(ranks))
    assert max(map(len, lines)) <= 78
    assert len(lines) <= 32
    assert any("\u2800" < letter <= "\u28ff" for letter in "".join(lines))


def test_one_rank_is_its_number() -> None:
    assert [line.strip() for line in drawn(Ring(), 1)] == ["0"]


def test_a_ring_is_a_circle_and_a_torus_a_grid() -> None:
    ring, torus = drawn(Ring(), 8), drawn(Torus(), 8)
    assert ring[0].strip() == "0"
    assert ring[-1].strip() == "4"
    assert re.fullmatch(r" *6 .* 2", ring[len(ring) // 2])
    assert torus[0] == "⠒⠒⠒ 0 ⠒⠒⠒⠒⠒ 1 ⠒⠒⠒⠒⠒ 2 ⠒⠒⠒⠒⠒ 3 ⠒⠒"
    assert torus[1] == "    ⡇       ⡇       ⡇       ⡇"
    assert torus[-1] == "⠒⠒⠒ 4 ⠒⠒⠒⠒⠒ 5 ⠒⠒⠒⠒⠒ 6 ⠒⠒⠒⠒⠒ 7 ⠒⠒"


def test_lines_that_leave_a_grid_are_explained() -> None:
    def last_line(ranks: int) -> Text:
        return list(drawing(Torus(), Torus().of(ranks)))[-1]

    assert last_line(12).plain == "Lines that leave the grid wrap around to the other side."
    assert "grid" not in last_line(4).plain, "no line of a 2 x 2 grid leaves it"
    assert "grid" not in last_line(7).plain, "a torus of a prime size is a ring"


def test_an_edge_around_a_torus_is_two_short_lines() -> None:
    layout = layout_of(Torus(), 12)  # 3 rows of 4
    assert layout.grid == (3, 4)
    assert layout.segments(0, 1) == [((0, 0), (1, 0))]
    assert layout.segments(0, 3) == [((0, 0), (-0.5, 0)), ((3.5, 0), (3, 0))]
    assert layout.segments(8, 0) == [((0, 2), (0, 2.5)), ((0, -0.5), (0, 0))]


def test_a_stars_hub_is_in_the_middle() -> None:
    layout = layout_of(Star(), 9)
    assert layout.points[0] == (0, 0)
    assert layout.points[1] == (0, -1)
    assert layout.points[3] == (1, 0)
    assert layout_of(Edges(((0, 1), (0, 2))), 3).points == layout_of(thinwire.Ring(), 3).points
