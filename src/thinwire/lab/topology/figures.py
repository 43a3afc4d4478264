"""The figures that `thinwire topology` prints of a graph."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isfinite
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from thinwire import extend
from thinwire.lab.report.charts.svg import shortened
from thinwire.lab.report.number_format import counted
from thinwire.lab.tables import plain_table
from thinwire.lab.topology import drawing

MOST_RANKS = 1024  # the figures of larger graphs take minutes
SHARE = 1e-3  # fraction of the differences left after the reported number of rounds
LONGEST = 62  # letters of a round's list of edges
LONGEST_NOTATION = 240  # letters

SHORT_NAMES = {"Gossip": "dpsgd", "EdgeGossip": "powergossip", "PushSum": "sgp"}

Span = tuple[float, float]  # smallest and largest


@dataclass(frozen=True)
class Described:
    topology: extend.Topology
    graph: extend.Graph

    @property
    def title(self) -> str:
        return f"{self.graph.name}, {counted(self.graph.size, 'rank')}"

    @property
    def rounds(self) -> int | None:
        """Rounds until 1/1000 of the differences is left; None if never."""
        rounds = self.graph.rounds_to(SHARE)
        return ceil(rounds) if isfinite(rounds) else None

    @property
    def methods(self) -> dict[str, bool]:
        """The methods it works with."""
        return {
            "Gossip": self.graph.doubly_stochastic,
            "EdgeGossip": self.graph.symmetric and not self.graph.varies,
            "PushSum": True,
        }

    @cached_property
    def own(self) -> Span:
        """The weights of the ranks' own values."""
        return _span(np.concatenate([np.diag(phase) for phase in self.graph.phases]))

    @cached_property
    def neighbors(self) -> Span | None:
        """The weights of received values; None if no rank sends."""
        apart = ~np.eye(self.graph.size, dtype=bool)
        received = np.concatenate([phase[apart & (phase != 0)] for phase in self.graph.phases])
        return _span(received) if len(received) else None

    def edges_by_round(self) -> list[list[tuple[int, int]]]:
        """The edges (sender, receiver) of each round."""
        return [
            sorted((int(j), int(i)) for i, j in np.argwhere(phase) if i != j and (j < i or not self.graph.symmetric))
            for phase in self.graph.phases
        ]

    def round_texts(self) -> list[str]:
        return [_round(phase, edges) for phase, edges in zip(self.graph.phases, self.edges_by_round(), strict=True)]

    def as_dict(self) -> dict[str, Any]:
        graph = self.graph
        return {
            "topology": repr(self.topology),
            "name": graph.name,
            "ranks": graph.size,
            "edges": graph.edges,
            "rounds": self.edges_by_round(),
            "degree": graph.degree,
            "own_weights": self.own,
            "neighbour_weights": self.neighbors,
            "symmetric": graph.symmetric,
            "doubly_stochastic": graph.doubly_stochastic,
            "spectral_gap": graph.spectral_gap,
            "rounds_to_a_thousandth": self.rounds,
            "diffusion_rate": graph.diffusion_rate,
            "methods": [method for method, works in self.methods.items() if works],
        }

    def shown(self) -> Group:
        return Group(Text(self.title, style="bold"), "", *self._drawn(), "", self._table())

    def _drawn(self) -> Iterable[Text]:
        return (
            [Text(f"Not drawn: {self._reason_not_drawn}")]
            if self._reason_not_drawn
            else drawing.drawing(self.topology, self.graph)
        )

    @property
    def _reason_not_drawn(self) -> str:
        """Why it cannot be drawn in a terminal, if it cannot."""
        if self.graph.size > drawing.MOST_RANKS:
            return f"lines between more than {drawing.MOST_RANKS} ranks cannot be distinguished here."
        edges = len(self.graph.edges)
        return f"{edges} lines cannot be distinguished here." if edges > drawing.MOST_EDGES else ""

    def _table(self) -> Table:
        table = plain_table(show_header=False, show_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in self._rows():
            table.add_row(name, Text(text))
        return table

    def _rows(self) -> Iterator[tuple[str, str]]:
        graph = self.graph
        yield "notation", shortened(repr(self.topology), LONGEST_NOTATION)
        yield "edges", f"{len(graph.edges):,}, {self._ways()}"
        if graph.varies:
            yield (
                "rounds in turn",
                f"{len(graph.phases)}" + ("" if self._reason_not_drawn else ", drawn in one picture"),
            )
            for number, text in enumerate(self.round_texts(), start=1):
                yield f"  round {number}", text
        yield "busiest rank", f"sends to {counted(graph.degree, 'other')}" + " in a round" * graph.varies
        yield "weights", f"own {_range(self.own)}" + (f", others' {_range(self.neighbors)}" if self.neighbors else "")
        yield "", self._sums()
        yield "spectral gap", f"{graph.spectral_gap:.5g}"
        yield "rounds to 1/1000", self._settling()
        if graph.diffusion_rate is not None:
            yield "diffusion rate", f"{graph.diffusion_rate:.5g} is the optimum: differences shrink fastest"
        fitting = [method for method, works in self.methods.items() if works]
        yield "works with", ", ".join(f"{method} ({SHORT_NAMES[method]})" for method in fitting)
        if not all(self.methods.values()):
            yield "not with", ", ".join(self._refused())

    def _ways(self) -> str:
        if self.graph.symmetric:
            return "symmetric: both ends exchange"
        there = set(self.graph.edges)
        back = sum((j, i) in there for i, j in there)
        if back == len(there) and not self.graph.varies:
            return "both ways, with different weights at the two ends"
        return f"one-way but for {counted(back // 2, 'pair')}" if back and not self.graph.varies else "one-way"

    def _sums(self) -> str:
        if self.graph.doubly_stochastic:
            return "doubly stochastic: preserves the mean and consensus"
        return "only column stochastic: does not preserve consensus"

    def _settling(self) -> str:
        if self.rounds is None:
            return "never: the differences do not shrink"
        if self.graph.shrinkage == 0:
            return f"{counted(self.rounds, 'round')} to exact consensus"
        return f"{counted(self.rounds, 'round')} until 1/1000 of the differences is left"

    def _refused(self) -> Iterator[str]:
        reasons = {
            "Gossip": "not doubly stochastic",
            "EdgeGossip": "edges change every round" if self.graph.varies else "not symmetric",
        }
        return (f"{method} ({reasons[method]})" for method, works in self.methods.items() if not works)


def describe(topology: extend.Topology, ranks: int) -> Described:
    if ranks > MOST_RANKS:
        raise ValueError(f"topologies are described for up to {MOST_RANKS:,} ranks, not {ranks:,}")
    return Described(topology, topology.of(ranks))


def _span(values: Any) -> Span:
    return float(values.min()), float(values.max())


def _range(span: Span) -> str:
    low, high = (f"{value:.4g}" for value in span)
    return low if low == high else f"{low} to {high}"


def _round(phase: Any, edges: list[tuple[int, int]]) -> str:
    """Describe a round by the offset if all ranks send alike, or by the edges if there are few."""
    size = len(phase)
    if all(np.array_equal(np.roll(phase[:, 0], rank), phase[:, rank]) for rank in range(size)):
        hops = " and ".join(f"i + {hop}" for hop in np.flatnonzero(phase[:, 0]) if hop)
        return f"rank i sends to {hops}"
    text = " ".join(f"{i}-{j}" for i, j in edges)
    return text if len(text) <= LONGEST else counted(len(edges), "edge")
