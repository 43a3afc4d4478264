"""What `thinwire topology` tells of a graph."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isfinite
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

import thinwire
from thinwire.lab.report.charts.svg import shortened
from thinwire.lab.report.number_format import counted
from thinwire.lab.tables import plain_table
from thinwire.lab.topology import drawing

MOST_RANKS = 1024  # figures of more take minutes
SHARE = 1e-3  # of the differences, that rounds are told for
LONGEST = 62  # letters of a round's edges, that are told one by one
LONGEST_NOTATION = 240  # letters

SHORT_NAMES = {"Gossip": "dpsgd", "EdgeGossip": "powergossip", "PushSum": "sgp"}

Span = tuple[float, float]  # the least and the greatest


@dataclass(frozen=True)
class Told:
    topology: thinwire.Topology
    graph: thinwire.Graph

    @property
    def title(self) -> str:
        return f"{self.graph.name}, {counted(self.graph.size, 'rank')}"

    @property
    def rounds(self) -> int | None:
        """Until a thousandth of the differences is left; None if that is never."""
        rounds = self.graph.rounds_to(SHARE)
        return ceil(rounds) if isfinite(rounds) else None

    @property
    def methods(self) -> dict[str, bool]:
        """Which methods it goes with."""
        return {
            "Gossip": self.graph.doubly_stochastic,
            "EdgeGossip": self.graph.symmetric and not self.graph.varies,
            "PushSum": True,
        }

    @cached_property
    def own(self) -> Span:
        """The share that ranks keep of what they have."""
        return _span(np.concatenate([np.diag(phase) for phase in self.graph.phases]))

    @cached_property
    def neighbors(self) -> Span | None:
        """What they make of what another says; None if nobody says anything."""
        apart = ~np.eye(self.graph.size, dtype=bool)
        heard = np.concatenate([phase[apart & (phase != 0)] for phase in self.graph.phases])
        return _span(heard) if len(heard) else None

    def edges_in_turn(self) -> list[list[tuple[int, int]]]:
        """Who speaks to whom, round by round."""
        return [
            sorted((int(j), int(i)) for i, j in np.argwhere(phase) if i != j and (j < i or not self.graph.symmetric))
            for phase in self.graph.phases
        ]

    def said_in_turn(self) -> list[str]:
        return [_round(phase, edges) for phase, edges in zip(self.graph.phases, self.edges_in_turn(), strict=True)]

    def as_dict(self) -> dict[str, Any]:
        graph = self.graph
        return {
            "topology": repr(self.topology),
            "name": graph.name,
            "ranks": graph.size,
            "edges": graph.edges,
            "rounds": self.edges_in_turn(),
            "degree": graph.degree,
            "own_weights": self.own,
            "neighbour_weights": self.neighbors,
            "symmetric": graph.symmetric,
            "doubly_stochastic": graph.doubly_stochastic,
            "spectral_gap": graph.spectral_gap,
            "rounds_to_a_thousandth": self.rounds,
            "diffusion_rate": graph.diffusion_rate,
            "methods": [method for method, goes in self.methods.items() if goes],
        }

    def shown(self) -> Group:
        return Group(Text(self.title, style="bold"), "", *self._drawn(), "", self._table())

    def _drawn(self) -> Iterable[Text]:
        return [Text(f"Not drawn: {self._blot}")] if self._blot else drawing.drawing(self.topology, self.graph)

    @property
    def _blot(self) -> str:
        """Why it cannot be drawn in a terminal, if it cannot."""
        if self.graph.size > drawing.MOST_RANKS:
            return f"lines between more than {drawing.MOST_RANKS} ranks cannot be told apart here."
        edges = len(self.graph.edges)
        return f"{edges} lines cannot be told apart here." if edges > drawing.MOST_EDGES else ""

    def _table(self) -> Table:
        table = plain_table(show_header=False, show_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, said in self._rows():
            table.add_row(name, Text(said))
        return table

    def _rows(self) -> Iterator[tuple[str, str]]:
        graph = self.graph
        yield "notation", shortened(repr(self.topology), LONGEST_NOTATION)
        yield "edges", f"{len(graph.edges):,}, {self._ways()}"
        if graph.varies:
            yield "rounds in turn", f"{len(graph.phases)}" + ("" if self._blot else ", drawn together")
            for number, said in enumerate(self.said_in_turn(), start=1):
                yield f"  round {number}", said
        yield "busiest rank", f"speaks to {counted(graph.degree, 'other')}" + " in a round" * graph.varies
        yield "weights", f"own {_range(self.own)}" + (f", others' {_range(self.neighbors)}" if self.neighbors else "")
        yield "", self._sums()
        yield "spectral gap", f"{graph.spectral_gap:.5g}"
        yield "to a thousandth", self._settling()
        if graph.diffusion_rate is not None:
            yield "diffusion rate", f"{graph.diffusion_rate:.5g} is the best: differences shrink fastest"
        fitting = [method for method, goes in self.methods.items() if goes]
        yield "goes with", ", ".join(f"{method} ({SHORT_NAMES[method]})" for method in fitting)
        if not all(self.methods.values()):
            yield "not with", ", ".join(self._refused())

    def _ways(self) -> str:
        if self.graph.symmetric:
            return "symmetric: both ends hear each other"
        there = set(self.graph.edges)
        back = sum((j, i) in there for i, j in there)
        if back == len(there) and not self.graph.varies:
            return "both ways, weighed differently by the two ends"
        return f"one-way but for {counted(back // 2, 'pair')}" if back and not self.graph.varies else "one-way"

    def _sums(self) -> str:
        if self.graph.doubly_stochastic:
            return "doubly stochastic: the mean stays, and ranks that agree stay so"
        return "only column stochastic: ranks that agree do not stay so"

    def _settling(self) -> str:
        if self.rounds is None:
            return "never: differences only move about"
        if self.graph.shrinkage == 0:
            return f"{counted(self.rounds, 'round')}, and then nothing is left of differences"
        return f"{counted(self.rounds, 'round')} leave 1/1000 of the differences"

    def _refused(self) -> Iterator[str]:
        reasons = {
            "Gossip": "not doubly stochastic",
            "EdgeGossip": "other edges in every round" if self.graph.varies else "not symmetric",
        }
        return (f"{method} ({reasons[method]})" for method, goes in self.methods.items() if not goes)


def tell(topology: thinwire.Topology, ranks: int) -> Told:
    if ranks > MOST_RANKS:
        raise ValueError(f"topologies are told of up to {MOST_RANKS:,} ranks, not {ranks:,}")
    return Told(topology, topology.of(ranks))


def _span(values: Any) -> Span:
    return float(values.min()), float(values.max())


def _range(span: Span) -> str:
    low, high = (f"{value:.4g}" for value in span)
    return low if low == high else f"{low} to {high}"


def _round(phase: Any, edges: list[tuple[int, int]]) -> str:
    """By the distance if all ranks speak alike, or by the edges if these are few."""
    size = len(phase)
    if all(np.array_equal(np.roll(phase[:, 0], rank), phase[:, rank]) for rank in range(size)):
        hops = " and ".join(f"i + {hop}" for hop in np.flatnonzero(phase[:, 0]) if hop)
        return f"rank i speaks to {hops}"
    told = " ".join(f"{i}-{j}" for i, j in edges)
    return told if len(told) <= LONGEST else counted(len(edges), "edge")
