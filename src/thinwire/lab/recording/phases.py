"""How the layers of a model are factored over a run, and the bytes that groups of ranks or a server exchange."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import thinwire
from thinwire import inspect

Layers = Mapping[str, thinwire.LowRankLayer]


class Phases:
    """Records every change of the layers' ranks."""

    def __init__(self) -> None:
        self._layers: Layers = {}
        self._changes: list[dict[str, Any]] = []

    def add(self, step: int, layers: Layers) -> None:
        """Record the layers after a step."""
        if layers != self._layers:
            self._layers = dict(layers)
            self._changes.append({"step": step, "ranks": {name: layer.rank for name, layer in layers.items()}})

    def state_dict(self) -> dict[str, Any]:
        return {"layers": {name: tuple(layer) for name, layer in self._layers.items()}, "changes": self._changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._layers = {name: thinwire.LowRankLayer(*layer) for name, layer in state["layers"].items()}
        self._changes = state["changes"]

    def as_dict(self, parameters: int) -> dict[str, Any]:
        """The layers, each change, and the number of parameters of the model with its last low-rank factors."""
        if not self._changes:
            return {}
        factored = [at["ranks"] for at in self._changes if any(at["ranks"].values())]
        last: dict[str, int | None] = factored[-1] if factored else {}
        saved = sum(_saved(layer, last.get(name)) for name, layer in self._layers.items())
        return {
            "layers": [
                {"name": name, "kind": layer.kind, "rows": layer.rows, "columns": layer.columns}
                for name, layer in self._layers.items()
            ],
            "changes": self._changes,
            "parameters": parameters - saved,
        }


def _saved(layer: thinwire.LowRankLayer, rank: int | None) -> int:
    full = layer.rows * layer.columns
    return 0 if rank is None else max(0, full - rank * (layer.rows + layer.columns))


def grouped(groups: Sequence[Sequence[int]], sent: Iterable[Mapping[int, int]]) -> dict[str, Any]:
    """Bytes within and between groups, summed over all ranks, from the bytes that each sent to each other rank."""
    if not groups:
        return {}
    of_rank = {rank: i for i, ranks in enumerate(groups) for rank in ranks}
    counted = {"within": 0, "between": 0}
    for rank, to in enumerate(sent):
        for other, nbytes in to.items():
            counted["within" if of_rank[rank] == of_rank[other] else "between"] += nbytes
    return {"groups": [list(ranks) for ranks in groups]} | counted


def served(method: str, link_bytes: Sequence[int]) -> dict[str, int]:
    """The link bytes of the server and the most of any other rank, for a method with one server."""
    strategy = thinwire.strategy_of(method)
    servers = inspect.servers(strategy)
    if len(servers) != 1 or len(link_bytes) < 2 or not strategy.mean_of_all:  # else there is one server per group
        return {}
    (rank,) = servers
    return {"rank": rank, "link": link_bytes[rank], "worker": max(n for r, n in enumerate(link_bytes) if r != rank)}


def links_of(rank: int, meter: inspect.Meter) -> dict[str, Any]:
    """Bytes by the rank at the other end; ranks are texts, as in JSON."""
    ways = {"sent": meter.sent, "received": meter.received}
    return {"rank": rank} | {
        way: {str(other): nbytes for other, nbytes in sorted(counted.items()) if nbytes}
        for way, counted in ways.items()
    }
