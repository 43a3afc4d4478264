import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from thinwire import Complete, Edges, Exponential, Ring, Star, Topology, Torus, Weights, parse, strategy_of
from thinwire.lab import topology
from thinwire.lab.topology import KINDS, Told, named, tell
from thinwire.lab.topology.figures import SHORT_NAMES
from thinwire.lab.topology.graph_picture import picture

ONE_WAY = Edges(((0, 1), (1, 2), (2, 0), (0, 2)), directed=True)
SVG = "{http://www.w3.org/2000/svg}"


def printed(told: Told, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(told.shown())
    return captured.get()


def elements(told: Told, name: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(picture(told)).findall(f".//{SVG}{name}")


@pytest.mark.parametrize("name", KINDS)
def test_short_names_are_kinds_that_8_ranks_have(name: str) -> None:
    told = tell(named(name), 8)
    assert parse(told.as_dict()["topology"]) == named(name)
    assert told.title in printed(told)


def test_notations_and_other_names_are_known() -> None:
    assert named("full") == Complete()
    assert named("Exponential(2)") == Exponential(2)
    assert named("Edges(((0, 1), (1, 2)))") == Edges(((0, 1), (1, 2)))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("rign", r"^unknown topology 'rign' \(did you mean 'ring'\?\)$"),
        ("Torus", r"^unknown topology 'Torus' \(did you mean 'torus'\?\)$"),
        ("erdos_renyi", r"\(did you mean 'erdos-renyi'\?\)$"),
        ("edges", r"^unknown topology 'edges' \(write it with its settings: 'Edges\(\(\(0, 1\), \(1, 2\)\)\)'\)$"),
        ("zzz", r"^unknown topology 'zzz' \(known: ring, torus, .* or a notation such as 'Exponential\(2\)'\)$"),
        ("Exponential(7)", r"^Exponential speaks to 1 or 2 peers a round, not 7\n  Exponential\(7\)\n  \^{14}$"),
        ("TopK(0.1)", r"^'TopK\(0.1\)' describes TopK\(0.1\), which is not a topology \(known: ring, "),
    ],
)
def test_what_is_no_topology_is_shown_with_a_hint(said: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        named(said)


def test_a_rings_figures() -> None:
    told = tell(Ring(), 8)
    said = told.as_dict()
    assert said["spectral_gap"] == pytest.approx(0.19526, abs=5e-6)
    assert said["diffusion_rate"] == pytest.approx(1.3084, abs=5e-5)
    assert said["rounds_to_a_thousandth"] == 32
    assert said["methods"] == ["Gossip", "EdgeGossip", "PushSum"]
    assert json.loads(json.dumps(said))["edges"] == [list(edge) for edge in Ring().of(8).edges]
    lines = printed(told)
    for expected in (
        "8, symmetric: both ends hear each other",
        "speaks to 2 others",
        "own 0.3333, others' 0.3333",
        "doubly stochastic: the mean stays",
        "0.19526",
        "32 rounds leave 1/1000",
        "1.3084 is the best",
        "Gossip (dpsgd), EdgeGossip (powergossip), PushSum (sgp)",
    ):
        assert expected in lines
    assert "not with" not in lines


@pytest.mark.parametrize("kind", [*KINDS.values(), ONE_WAY, Exponential(2), Weights(((0, 1, 0), (0, 0, 1), (1, 0, 0)))])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_strategies_take_what_is_said_to_go_with_them(kind: Topology, ranks: int) -> None:
    try:
        told = tell(kind, ranks)
    except ValueError:
        return  # there is no such graph
    assert told.methods.keys() == SHORT_NAMES.keys()
    for name, short in SHORT_NAMES.items():
        strategy: Any = replace(strategy_of(short), topology=kind)  # type: ignore[type-var]  # a dataclass
        assert type(strategy).__name__ == name
        if told.methods[name]:
            assert strategy.graph(ranks).edges == told.graph.edges
        else:
            with pytest.raises(ValueError, match=r"gossip would drift|a conversation that goes on"):
                strategy.graph(ranks)


def test_rounds_are_told_in_turn() -> None:
    told = tell(Exponential(), 8)
    assert told.said_in_turn() == [f"rank i speaks to i + {hop}" for hop in (1, 2, 4)]
    assert told.as_dict()["rounds"][1][:2] == [(0, 2), (1, 3)]
    lines = printed(told)
    assert "3, drawn together" in lines
    assert "rank i speaks to i + 4" in lines
    assert "3 rounds, and then nothing is left of differences" in lines
    assert "EdgeGossip (other edges in every round)" in lines
    assert "rank i speaks to i + 2 and i + 4" in printed(tell(Exponential(2), 8))


def test_what_only_push_sums_can_use_is_told() -> None:
    told = tell(ONE_WAY, 3)
    assert told.as_dict()["methods"] == ["PushSum"]
    lines = printed(told)
    assert "4, one-way but for 1 pair" in lines
    assert "only column stochastic" in lines
    assert "Gossip (not doubly stochastic), EdgeGossip (not symmetric)" in lines
    assert "own 0.3333 to 0.5" in lines


def test_what_never_settles_is_told_and_is_json() -> None:
    told = tell(Weights(((0, 1), (1, 0))), 2)
    assert "never: differences only move about" in printed(told)
    assert told.as_dict()["rounds_to_a_thousandth"] is None
    assert "both ways, weighed differently by the two ends" in printed(tell(Weights(((0.5, 1), (0.5, 0))), 2))


def test_one_rank_has_figures() -> None:
    told = tell(Ring(), 1)
    assert told.neighbors is None
    assert "own 1" in printed(told)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (tell(Ring(), 33), "Not drawn: lines between more than 32 ranks cannot be told apart here."),
        (tell(Exponential(), 64), "Not drawn: lines between more than 32 ranks cannot be told apart here."),
        (tell(Complete(), 32), "Not drawn: 496 lines cannot be told apart here."),
    ],
)
def test_what_cannot_be_told_apart_is_not_drawn(told: Told, reason: str) -> None:
    lines = printed(told)
    assert reason in lines
    assert "drawn together" not in lines
    assert not any("\u2800" < letter <= "\u28ff" for letter in lines)


def test_a_long_notation_is_cut_short() -> None:
    edges = Edges(tuple(pairwise(range(200))))
    assert len(printed(tell(edges, 200)).splitlines()) < 20
    assert parse(tell(edges, 200).as_dict()["topology"]) == edges


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("ranks", [2, 8, 16, 32])
def test_80_columns_are_enough(name: str, ranks: int) -> None:
    told = tell(named(name), ranks)
    assert max(len(line.rstrip()) for line in printed(told).splitlines()) <= 80
    wide = [line.rstrip() for line in printed(told, 200).splitlines()]
    assert wide == [line.rstrip() for line in printed(told).splitlines()], "and no line has to be folded"


def test_too_many_ranks_are_refused_before_anything_is_made() -> None:
    with pytest.raises(ValueError, match=r"^topologies are told of up to 1,024 ranks, not 1,000,000$"):
        tell(Ring(), 10**6)


def test_a_picture_has_every_rank_and_every_edge() -> None:
    told = tell(Ring(), 8)
    texts = [text.text for text in elements(told, "text")]
    assert texts == [
        "ring, 8 ranks",
        "spectral gap 0.1953, 32 rounds to a thousandth",
        *map(str, range(8)),
    ]
    assert len(elements(told, "circle")) == 8
    assert len(elements(told, "path")) == 8
    assert not any("marker-end" in path.attrib for path in elements(told, "path")), "conversations have no arrows"
    assert len(elements(tell(Torus(), 16), "path")) == 24 + 2 * 8, "those around the torus are two short lines"
    assert len(elements(tell(Star(), 9), "path")) == 8


def test_a_picture_knows_light_paper_and_dark_screens() -> None:
    (style,) = elements(tell(Ring(), 4), "style")
    assert style.text is not None
    light, dark = style.text.split("@media (prefers-color-scheme:dark)")
    assert "--paper:#ffffff" in light
    assert "--paper:#0d1117" in dark


def test_one_way_edges_are_arrows_and_rounds_have_colours() -> None:
    paths = elements(tell(Exponential(), 8), "path")
    *edges, one, two, three = paths
    assert len(edges) == 8 + 8 + 4, "who speaks back in the same round has one line"
    assert all("marker-end" in path.attrib for path in edges)
    assert sum("marker-start" in path.attrib for path in edges) == 4
    assert [path.get("stroke") for path in (one, two, three)] == ["var(--m0)", "var(--m1)", "var(--m2)"]
    assert {path.get("stroke") for path in edges} == {"var(--m0)", "var(--m1)", "var(--m2)"}


def test_the_way_back_in_another_round_is_a_line_of_its_own() -> None:
    paths = elements(tell(Exponential(), 6), "path")[:-3]
    assert len(paths) == 18, "0 to 2 in the second round, 2 to 0 in the third"
    assert sum("Q" in path.attrib["d"] for path in paths) == 6


def test_a_name_cannot_break_a_picture() -> None:
    told = tell(Ring(), 2)
    object.__setattr__(told.graph, "name", "<script>&")
    assert elements(told, "title")[0].text == "<script>&, 2 ranks"


def test_a_picture_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    told = tell(Ring(), 4)
    topology.write(told, tmp_path / "ring.svg")
    assert (tmp_path / "ring.svg").read_text("utf-8") == picture(told)
    with pytest.raises(ValueError, match=r"x\.svg cannot be written: No such file or directory$"):
        topology.write(told, tmp_path / "nowhere" / "x.svg")
    with pytest.raises(ValueError, match=r"^a picture of 5,050 edges would be a blot; up to 5,000 are drawn$"):
        topology.write(tell(Complete(), 101), tmp_path / "blot.svg")
    assert not (tmp_path / "blot.svg").exists()
