"""The history of each layer over a run: payload bytes, residual norm and gradient norm."""

from collections.abc import Mapping
from math import hypot
from typing import Any

import torch
from torch import Tensor

from thinwire import inspect

COUNTED = ("tensors", "elements", "dense", "payload")


class Layers:
    """One rank's record of every layer, at every evaluation of a run."""

    def __init__(self) -> None:
        self._history: dict[str, dict[str, Any]] = {}
        self._latest: dict[str, inspect.Layer] = {}
        self._gradients: dict[str, float] = {}

    def measure(self, parameters: Mapping[str, Tensor]) -> None:
        """Measure the norms of the reduced gradients, before they are clipped."""
        self._gradients = {name: 0.0 if p.grad is None else _norm(p.grad) for name, p in parameters.items()}

    def add(self, layers: dict[str, inspect.Layer]) -> None:
        """Add a point to each layer's history: the bytes sent so far, the residual and the gradient."""
        self._latest = layers
        for name, layer in layers.items():
            now = {
                "dense_bytes": layer.dense_bytes,
                "payload_bytes": layer.payload_bytes,
                "residual": None if layer.residual is None else _rounded(layer.residual),
                "gradient": _rounded(hypot(*(self._gradients[parameter] for parameter in layer.names))),
            }
            about = {"name": name, "kind": layer.kind, "elements": layer.elements}
            history = self._history.setdefault(name, about | {what: [] for what in now})
            for what, value in now.items():
                history[what].append(value)

    def state_dict(self) -> dict[str, Any]:
        return {"told": self._history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._history = state["told"]

    def as_list(self) -> list[dict[str, Any]]:
        return list(self._history.values())

    def kinds(self, payload_by_unit: Mapping[str, int], steps: int) -> dict[str, dict[str, float]]:
        """Tensors, elements and bytes per step by kind of layer, from a rank's payload bytes over the whole run."""
        kinds: dict[str, dict[str, float]] = {}
        for name, layer in self._latest.items():
            counts = (len(layer.names), layer.elements, layer.dense_bytes, payload_by_unit.get(name, 0))
            kind = kinds.setdefault(layer.kind, dict.fromkeys(COUNTED, 0))
            for what, count in zip(COUNTED, counts, strict=True):
                kind[what] += count
        return {name: kind | {what: kind[what] / steps for what in COUNTED[2:]} for name, kind in kinds.items()}


def _rounded(norm: float) -> float:
    return float(f"{norm:.6g}")


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64))
