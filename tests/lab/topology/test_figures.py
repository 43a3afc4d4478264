import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from thinwire import Complete, Edges, Exponential, Ring, Star, Torus, Weights, parse, strategy_of
from thinwire.extend import Topology
from thinwire.lab import topology
from thinwire.lab.topology import KINDS, Described, describe, named
from thinwire.lab.topology.figures import SHORT_NAMES
from thinwire.lab.topology.graph_picture import picture

ONE_WAY = Edges(((0, 1), (1, 2), (2, 0), (0, 2)), directed=True)
SVG = "{http://www.w3.org/2000/svg}"


def printed(described: Described, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(described.shown())
    return captured.get()


def elements(described: Described, name: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(picture(described)).findall(f".//{SVG}{name}")


@pytest.mark.parametrize("name", KINDS)
def test_every_short_name_is_a_topology_of_8_ranks(name: str) -> None:
    described = describe(named(name), 8)
    assert parse(described.as_dict()["topology"]) == named(name)
    assert described.title in printed(described)


def test_notations_and_synonyms_are_parsed() -> None:
    assert named("full") == Complete()
    assert named("Exponential(2)") == Exponential(2)
    assert named("Edges(((0, 1), (1, 2)))") == Edges(((0, 1), (1, 2)))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rign", r"^unknown topology 'rign' \(did you mean 'ring'\?\)$"),
        ("Torus", r"^unknown topology 'Torus' \(did you mean 'torus'\?\)$"),
        ("erdos_renyi", r"\(did you mean 'erdos-renyi'\?\)$"),
        ("edges", r"^unknown topology 'edges' \(write it with its settings: 'Edges\(\(\(0, 1\), \(1, 2\)\)\)'\)$"),
        ("zzz", r"^unknown topology 'zzz' \(known: ring, torus, .* or a notation such as 'Exponential\(2\)'\)$"),
        ("Exponential(7)", r"^Exponential sends to 1 or 2 peers per round, not 7\n  Exponential\(7\)\n  \^{14}$"),
        ("TopK(0.1)", r"^'TopK\(0.1\)' describes TopK\(0.1\), which is not a topology \(known: ring, "),
    ],
)
def test_an_unknown_topology_is_an_error_with_a_hint(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        named(text)


def test_the_figures_of_a_ring() -> None:
    described = describe(Ring(), 8)
    figures = described.as_dict()
    assert figures["spectral_gap"] == pytest.approx(0.19526, abs=5e-6)
    assert figures["diffusion_rate"] == pytest.approx(1.3084, abs=5e-5)
    assert figures["rounds_to_a_thousandth"] == 32
    assert figures["methods"] == ["Gossip", "EdgeGossip", "PushSum"]
    assert json.loads(json.dumps(figures))["edges"] == [list(edge) for edge in Ring().of(8).edges]
    lines = printed(described)
    for expected in (
        "8, symmetric: both ends exchange",
        "sends to 2 others",
        "own 0.3333, others' 0.3333",
        "doubly stochastic: preserves the mean",
        "0.19526",
        "32 rounds until 1/1000",
        "1.3084 is the optimum",
        "Gossip (dpsgd), EdgeGossip (powergossip), PushSum (sgp)",
    ):
        assert expected in lines
    assert "not with" not in lines


@pytest.mark.parametrize("kind", [*KINDS.values(), ONE_WAY, Exponential(2), Weights(((0, 1, 0), (0, 0, 1), (1, 0, 0)))])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_strategies_accept_exactly_the_topologies_listed_as_working(kind: Topology, ranks: int) -> None:
    try:
        described = describe(kind, ranks)
    except ValueError:
        return  # there is no such graph
    assert described.methods.keys() == SHORT_NAMES.keys()
    for name, short in SHORT_NAMES.items():
        strategy: Any = replace(strategy_of(short), topology=kind)  # type: ignore[type-var]  # a dataclass
        assert type(strategy).__name__ == name
        if described.methods[name]:
            assert strategy.graph(ranks).edges == described.graph.edges
        else:
            with pytest.raises(ValueError, match=r"not doubly stochastic|symmetric and fixed"):
                strategy.graph(ranks)


def test_every_round_is_described() -> None:
    described = describe(Exponential(), 8)
    assert described.round_texts() == [f"rank i sends to i + {hop}" for hop in (1, 2, 4)]
    assert described.as_dict()["rounds"][1][:2] == [(0, 2), (1, 3)]
    lines = printed(described)
    assert "3, drawn in one picture" in lines
    assert "rank i sends to i + 4" in lines
    assert "3 rounds to exact consensus" in lines
    assert "EdgeGossip (edges change every round)" in lines
    assert "rank i sends to i + 2 and i + 4" in printed(describe(Exponential(2), 8))


def test_a_directed_graph_works_with_push_sum_only() -> None:
    described = describe(ONE_WAY, 3)
    assert described.as_dict()["methods"] == ["PushSum"]
    lines = printed(described)
    assert "4, one-way but for 1 pair" in lines
    assert "only column stochastic" in lines
    assert "Gossip (not doubly stochastic), EdgeGossip (not symmetric)" in lines
    assert "own 0.3333 to 0.5" in lines


def test_a_graph_that_never_converges_has_no_number_of_rounds() -> None:
    described = describe(Weights(((0, 1), (1, 0))), 2)
    assert "never: the differences do not shrink" in printed(described)
    assert described.as_dict()["rounds_to_a_thousandth"] is None
    assert "both ways, with different weights at the two ends" in printed(describe(Weights(((0.5, 1), (0.5, 0))), 2))


def test_one_rank_has_figures() -> None:
    described = describe(Ring(), 1)
    assert described.neighbors is None
    assert "own 1" in printed(described)


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (describe(Ring(), 33), "Not drawn: lines between more than 32 ranks cannot be distinguished here."),
        (describe(Exponential(), 64), "Not drawn: lines between more than 32 ranks cannot be distinguished here."),
        (describe(Complete(), 32), "Not drawn: 496 lines cannot be distinguished here."),
    ],
)
def test_a_graph_with_too_many_lines_is_not_drawn(described: Described, reason: str) -> None:
    lines = printed(described)
    assert reason in lines
    assert "drawn in one picture" not in lines
    assert not any("\u2800" < letter <= "\u28ff" for letter in lines)


def test_a_long_notation_is_cut_short() -> None:
    edges = Edges(tuple(pairwise(range(200))))
    assert len(printed(describe(edges, 200)).splitlines()) < 20
    assert parse(describe(edges, 200).as_dict()["topology"]) == edges


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("ranks", [2, 8, 16, 32])
def test_the_output_fits_80_columns(name: str, ranks: int) -> None:
    described = describe(named(name), ranks)
    assert max(len(line.rstrip()) for line in printed(described).splitlines()) <= 80
    wide = [line.rstrip() for line in printed(described, 200).splitlines()]
    assert wide == [line.rstrip() for line in printed(described).splitlines()], "no line is folded"


def test_too_many_ranks_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"^topologies are described for up to 1,024 ranks, not 1,000,000$"):
        describe(Ring(), 10**6)


def test_a_picture_has_every_rank_and_every_edge() -> None:
    described = describe(Ring(), 8)
    texts = [text.text for text in elements(described, "text")]
    assert texts == [
        "ring, 8 ranks",
        "spectral gap 0.1953, 32 rounds to 1/1000",
        *map(str, range(8)),
    ]
    assert len(elements(described, "circle")) == 8
    assert len(elements(described, "path")) == 8
    assert not any("marker-end" in path.attrib for path in elements(described, "path")), (
        "undirected edges have no arrows"
    )
    assert len(elements(describe(Torus(), 16), "path")) == 24 + 2 * 8, "those around the torus are two short lines"
    assert len(elements(describe(Star(), 9), "path")) == 8


def test_a_picture_has_a_light_and_a_dark_color_scheme() -> None:
    (style,) = elements(describe(Ring(), 4), "style")
    assert style.text is not None
    light, dark = style.text.split("@media (prefers-color-scheme:dark)")
    assert "--paper:#ffffff" in light
    assert "--paper:#0d1117" in dark


def test_directed_edges_are_arrows_and_rounds_have_colors() -> None:
    paths = elements(describe(Exponential(), 8), "path")
    *edges, one, two, three = paths
    assert len(edges) == 8 + 8 + 4, "an edge both ways in one round is one line"
    assert all("marker-end" in path.attrib for path in edges)
    assert sum("marker-start" in path.attrib for path in edges) == 4
    assert [path.get("stroke") for path in (one, two, three)] == ["var(--m0)", "var(--m1)", "var(--m2)"]
    assert {path.get("stroke") for path in edges} == {"var(--m0)", "var(--m1)", "var(--m2)"}


def test_the_edge_back_in_another_round_is_a_separate_line() -> None:
    paths = elements(describe(Exponential(), 6), "path")[:-3]
    assert len(paths) == 18, "0 to 2 in the second round, 2 to 0 in the third"
    assert sum("Q" in path.attrib["d"] for path in paths) == 6


def test_names_are_escaped_in_a_picture() -> None:
    described = describe(Ring(), 2)
    object.__setattr__(described.graph, "name", "<script>&")
    assert elements(described, "title")[0].text == "<script>&, 2 ranks"


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    described = describe(Ring(), 4)
    topology.write(described, tmp_path / "ring.svg")
    assert (tmp_path / "ring.svg").read_text("utf-8") == picture(described)
    with pytest.raises(ValueError, match=r"x\.svg cannot be written: No such file or directory$"):
        topology.write(described, tmp_path / "nowhere" / "x.svg")
    with pytest.raises(ValueError, match=r"^a picture of 5,050 edges would be unreadable; at most 5,000 are drawn$"):
        topology.write(describe(Complete(), 101), tmp_path / "blot.svg")
    assert not (tmp_path / "blot.svg").exists()
