import re

import pytest
from rich.text import Text

import thinwire
from thinwire import Complete, Edges, Exponential, Hypercube, RandomRegular, Ring, Star, Topology, Torus
from thinwire.lab.topology import braille
from thinwire.lab.topology.braille import Canvas
from thinwire.lab.topology.coordinates import places
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


def test_a_label_stands_over_lines_and_may_have_room() -> None:
    canvas = Canvas(6, 3)
    canvas.line((0, 5), (11, 5))
    canvas.label("7", 1, 3, room=1)
    (line,) = canvas.shown()
    assert line.plain == "⠒⠒ 7 ⠒"
    assert {span.style for span in line.spans} == {braille.LINES, braille.LABELS}


def test_an_empty_canvas_shows_nothing_and_dots_beside_it_are_lost() -> None:
    canvas = Canvas(2, 2)
    canvas.line((-5, -5), (-1, -1))
    canvas.line((9, 9), (20, 20))
    assert canvas.shown() == []


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 13, 16, 22, 26, MOST_RANKS])
def test_every_rank_is_there_once_and_80_columns_are_enough(kind: Topology, ranks: int) -> None:
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


def test_a_ring_is_round_and_a_torus_a_grid() -> None:
    ring, torus = drawn(Ring(), 8), drawn(Torus(), 8)
    assert ring[0].strip() == "0"
    assert ring[-1].strip() == "4"
    assert re.fullmatch(r" *6 .* 2", ring[len(ring) // 2])
    assert torus[0] == "⠒⠒⠒ 0 ⠒⠒⠒⠒⠒ 1 ⠒⠒⠒⠒⠒ 2 ⠒⠒⠒⠒⠒ 3 ⠒⠒"
    assert torus[1] == "    ⡇       ⡇       ⡇       ⡇"
    assert torus[-1] == "⠒⠒⠒ 4 ⠒⠒⠒⠒⠒ 5 ⠒⠒⠒⠒⠒ 6 ⠒⠒⠒⠒⠒ 7 ⠒⠒"


def test_lines_that_leave_a_grid_are_explained() -> None:
    def said(ranks: int) -> Text:
        return list(drawing(Torus(), Torus().of(ranks)))[-1]

    assert said(12).plain == "Lines that leave the grid come back on the other side."
    assert "grid" not in said(4).plain, "of two by two, none does"
    assert "grid" not in said(7).plain, "of a prime number, it is a ring"


def test_an_edge_around_a_torus_is_two_short_lines() -> None:
    placed = places(Torus(), 12)  # 3 rows of 4
    assert placed.grid == (3, 4)
    assert placed.segments(0, 1) == [((0, 0), (1, 0))]
    assert placed.segments(0, 3) == [((0, 0), (-0.5, 0)), ((3.5, 0), (3, 0))]
    assert placed.segments(8, 0) == [((0, 2), (0, 2.5)), ((0, -0.5), (0, 0))]


def test_a_stars_hub_is_in_the_middle() -> None:
    placed = places(Star(), 9)
    assert placed.points[0] == (0, 0)
    assert placed.points[1] == (0, -1)
    assert placed.points[3] == (1, 0)
    assert places(Edges(((0, 1), (0, 2))), 3).points == places(thinwire.Ring(), 3).points
