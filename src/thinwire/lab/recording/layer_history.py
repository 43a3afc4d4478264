"""How a method treats each layer as a run goes on: what it says of it, what not, of how large a gradient."""

from collections.abc import Mapping
from math import hypot
from typing import Any

import torch
from torch import Tensor

from thinwire import inspect

COUNTED = ("tensors", "elements", "dense", "payload")


class Layers:
    """One rank's notes, at every evaluation of a run."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, Any]] = {}
        self._latest: dict[str, inspect.Layer] = {}
        self._gradients: dict[str, float] = {}

    def weigh(self, parameters: Mapping[str, Tensor]) -> None:
        """Note how large the agreed gradients are, before they are clipped."""
        self._gradients = {name: 0.0 if p.grad is None else _norm(p.grad) for name, p in parameters.items()}

    def note(self, layers: dict[str, inspect.Layer]) -> None:
        """Note what has been said of each layer by now, and how much has not."""
        self._latest = layers
        for name, layer in layers.items():
            now = {
                "dense_bytes": layer.dense_bytes,
                "payload_bytes": layer.payload_bytes,
                "residual": None if layer.residual is None else _rounded(layer.residual),
                "gradient": _rounded(hypot(*(self._gradients[parameter] for parameter in layer.names))),
            }
            about = {"name": name, "kind": layer.kind, "elements": layer.elements}
            told = self._told.setdefault(name, about | {what: [] for what in now})
            for what, value in now.items():
                told[what].append(value)

    def state_dict(self) -> dict[str, Any]:
        return {"told": self._told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._told = state["told"]

    def told(self) -> list[dict[str, Any]]:
        return list(self._told.values())

    def kinds(self, said: Mapping[str, int], steps: int) -> dict[str, dict[str, float]]:
        """Tensors, elements and bytes a step of each kind of layer, from what a rank said over the whole run."""
        kinds: dict[str, dict[str, float]] = {}
        for name, layer in self._latest.items():
            counts = (len(layer.names), layer.elements, layer.dense_bytes, said.get(name, 0))
            kind = kinds.setdefault(layer.kind, dict.fromkeys(COUNTED, 0))
            for what, count in zip(COUNTED, counts, strict=True):
                kind[what] += count
        return {name: kind | {what: kind[what] / steps for what in COUNTED[2:]} for name, kind in kinds.items()}


def _rounded(norm: float) -> float:
    return float(f"{norm:.6g}")


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64))
