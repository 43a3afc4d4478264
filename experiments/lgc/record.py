"""The recorded values of a training, in any order and with any scale."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thinwire.codecs.leader_positions import LeaderPositions

ORDERS = ("value", "magnitude", "index")
SCALES = ("rms", "none", "max")


class Shown(NamedTuple):
    """The values of all ranks in one step, as a code receives them."""

    at: int  # steps since the dense ones
    leader: int
    rows: Tensor  # [ranks, values]
    normal: Tensor  # factor to values divided by their layer's root mean square
    real: Tensor  # factor to gradients


class Record:
    """A training's values at the leader's indices; those of the first steps are for learning."""

    def __init__(self, path: Path, learning: int) -> None:
        saved: dict[str, Any] = torch.load(path)
        self.plan, self.names, self.sizes = saved["plan"], saved["names"], tuple(saved["sizes"])
        self.losses, self.rates, self.steps = saved["losses"], saved["rates"], saved["steps"]
        self.learning = learning
        self._shown: dict[tuple[str, str], list[Shown]] = {}

    @property
    def workload(self) -> str:
        return str(self.plan["workload"])

    @property
    def ranks(self) -> int:
        return int(self.plan["ranks"])

    @cached_property
    def counts(self) -> list[int]:
        """The number of values of each layer."""
        return LeaderPositions(self.plan["ratio"], sizes=self.sizes).counts(sum(self.sizes))

    @property
    def values(self) -> int:
        return sum(self.counts)

    def each(self, scales: Tensor) -> Tensor:
        """The number of each layer, repeated for each of its values."""
        return torch.repeat_interleave(scales, torch.tensor(self.counts))

    def shown(self, order: str = "value", scale: str = "rms") -> list[Shown]:
        """All steps in this order of values, with this scale."""
        if (order, scale) not in self._shown:
            base = self._base() if scale == "none" else 1.0
            self._shown[order, scale] = [self._step(at, order, scale, base) for at in range(len(self.steps))]
        return self._shown[order, scale]

    def order_bits(self, order: str, last: int = 20) -> float:
        """The extra bits per value of coding positions in this order instead of as a set."""
        if order == "index":
            return 0.0
        total, extra = sum(self.sizes), 0
        ordered, as_set = (LeaderPositions(self.plan["ratio"], order=o, sizes=self.sizes) for o in (order, "index"))
        steps = self.steps[-last:]
        for step in steps:
            where = step["where"].long()
            extra += len(ordered._coded(where, total)) - len(as_set._coded(where.sort().values, total))
        return 8 * extra / len(steps) / self.values

    def _step(self, at: int, order: str, scale: str, base: float) -> Shown:
        step = self.steps[at]
        rows, leader = step["rows"], step["leader"]
        rms = self.each(torch.where(step["scales"] == 0, 1, step["scales"]))
        divisor = {"rms": self._ones, "none": lambda _: base / rms, "max": self._largest}[scale](rows[leader])
        turns = self._turns(step["where"], rows[leader], order)
        return Shown(at, leader, (rows / divisor)[:, turns], divisor[turns], (divisor * rms)[turns])

    def _ones(self, own: Tensor) -> Tensor:
        return torch.ones_like(own)

    def _largest(self, own: Tensor) -> Tensor:
        """The leader's largest magnitude in each layer."""
        return self.each(torch.stack([v.abs().max() for v in torch.split(own, self.counts)])).clamp_min(1e-12)

    def _turns(self, where: Tensor, own: Tensor, order: str) -> Tensor:
        """The permutation from the leader's order, by value, to another one within each layer."""
        if order == "value":
            return torch.arange(len(own))
        key: Callable[[Tensor, Tensor], Tensor] = (lambda w, v: w) if order == "index" else (lambda w, v: -v.abs())
        pieces, start = [], 0
        for w, v in zip(torch.split(where, self.counts), torch.split(own, self.counts), strict=True):
            pieces.append(start + key(w, v).argsort(stable=True))
            start += len(v)
        return torch.cat(pieces)

    def _base(self) -> float:
        """The root mean square of all gradient values of the learning steps."""
        squares = [(s["rows"] * self.each(s["scales"])).square().mean() for s in self.steps[: self.learning]]
        return float(torch.stack(squares).mean().sqrt())
