"""How the layers of a model are factored as a run goes on, and what groups of ranks, or a server, say to others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import thinwire
from thinwire import inspect

Layers = Mapping[str, thinwire.LowRankLayer]


class Phases:
    """Notes every change of phase."""

    def __init__(self) -> None:
        self._layers: Layers = {}
        self._changes: list[dict[str, Any]] = []

    def note(self, step: int, layers: Layers) -> None:
        """What layers are after so many steps."""
        if layers != self._layers:
            self._layers = dict(layers)
            self._changes.append({"step": step, "ranks": {name: layer.rank for name, layer in layers.items()}})

    def state_dict(self) -> dict[str, Any]:
        return {"layers": {name: tuple(layer) for name, layer in self._layers.items()}, "changes": self._changes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._layers = {name: thinwire.LowRankLayer(*layer) for name, layer in state["layers"].items()}
        self._changes = state["changes"]

    def told(self, parameters: int) -> dict[str, Any]:
        """The layers, each change, and how many parameters the model has in thin layers at the end."""
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
    whole = layer.rows * layer.columns
    return 0 if rank is None else max(0, whole - rank * (layer.rows + layer.columns))


def grouped(groups: Sequence[Sequence[int]], sent: Iterable[Mapping[int, int]]) -> dict[str, Any]:
    """Bytes within and between groups, of all ranks together, from what each sent to each other."""
    if not groups:
        return {}
    of_rank = {rank: i for i, ranks in enumerate(groups) for rank in ranks}
    counted = {"within": 0, "between": 0}
    for rank, to in enumerate(sent):
        for other, nbytes in to.items():
            counted["within" if of_rank[rank] == of_rank[other] else "between"] += nbytes
    return {"groups": [list(ranks) for ranks in groups]} | counted


def served(method: str, link_bytes: Sequence[int]) -> dict[str, int]:
    """What links carried at the rank that serves and at the others, of a method that has one such rank."""
    strategy = thinwire.strategy_of(method)
    at = inspect.servers(strategy)
    if len(at) != 1 or len(link_bytes) < 2 or not strategy.mean_of_all:  # others have one in each group
        return {}
    (rank,) = at
    return {"rank": rank, "link": link_bytes[rank], "worker": max(n for r, n in enumerate(link_bytes) if r != rank)}


def links_of(rank: int, meter: inspect.Meter) -> dict[str, Any]:
    """Bytes by the rank at the other end, as they come back from run.json: its names are texts."""
    ways = {"sent": meter.sent, "received": meter.received}
    return {"rank": rank} | {
        way: {str(other): nbytes for other, nbytes in sorted(counted.items()) if nbytes}
        for way, counted in ways.items()
    }
