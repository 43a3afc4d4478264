"""docs/topologies.md shows the output of `thinwire topology`."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from thinwire.lab.topology import KINDS, describe, named

PAGE = (Path(__file__).parents[3] / "docs" / "topologies.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)


def test_every_kind_is_documented_with_8_and_16_ranks() -> None:
    assert {(name, ranks) for name, ranks, _ in ROWS} == {
        (name, ranks) for name in (*KINDS, "Exponential(2)") for ranks in ("8", "16")
    }
    assert all(f"| `{name}`" in PAGE.split("## What `thinwire topology` prints")[0] for name in KINDS)


@pytest.mark.parametrize(("name", "ranks", "figures"), ROWS)
def test_documented_figures_equal_the_output(name: str, ranks: str, figures: str) -> None:
    described = describe(named(name), int(ranks))
    graph, rate = described.graph, described.graph.diffusion_rate
    assert described.rounds is not None
    assert figures.split(" | ") == [
        str(len(graph.edges)),
        str(len(graph.phases)),
        f"{graph.spectral_gap:.4f}",
        "-" if rate is None else f"{rate:.4f}",
        str(graph.degree),
        str(described.rounds),
        str(described.rounds * graph.degree),
    ]


def test_documented_notations_equal_the_short_names() -> None:
    listed = re.findall(r"^\| `([a-z-]+)`(?:, `[a-z]+`)? \| `([A-Z][^`]*)` \|", PAGE, re.MULTILINE)
    assert len(listed) == len(KINDS)
    assert all(named(notation) == KINDS[name] for name, notation in listed)


def test_the_documented_example_equals_the_output() -> None:
    console = Console(width=80, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(describe(named("ring"), 8).shown())
    lines = [line.rstrip() for line in captured.get().rstrip().splitlines()]
    assert "\n".join(lines) in PAGE
