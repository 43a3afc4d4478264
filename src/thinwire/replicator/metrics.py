"""Means and variances of metrics, on one replica or over all."""

from collections.abc import Mapping
from dataclasses import asdict
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from .context import Context
from .running_moments import Moments

AXES = 8  # of a value, at most: replicas exchange shapes in a message of fixed size


class Tally:
    """Accumulates the count, mean and variance of values: numbers, or tensors of one shape.

    Examples:
        >>> from thinwire import Tally
        >>> accuracy = Tally()
        >>> accuracy.add(0.5, count=10)  # the mean of 10 examples
        >>> accuracy.add(1.0, count=30)
        >>> accuracy.count, accuracy.mean.item()
        (40.0, 0.875)
    """

    def __init__(self) -> None:
        self._moments: Moments | None = None  # None until the first value shows the shape

    def add(self, value: float | Tensor, count: float = 1, variance: float | Tensor = 0.0) -> None:
        """Add `count` examples that have the mean `value` and this variance."""
        if not 0 <= count < inf:
            raise ValueError(f"the count is 0 examples or more, not {count!r}")
        mean = _float64(value)
        self._merge(Moments(float(count), mean, (_float64(variance) * float(count)).expand_as(mean)))

    def add_each(self, values: Tensor) -> None:
        """Add every value along the first axis."""
        if not values.dim():
            raise ValueError("add_each takes values along a first axis; use add for one value")
        xs = _float64(values)
        mean = xs.mean(0)
        self._merge(Moments(float(len(xs)), mean, (xs - mean).square().sum(0)))

    def reset(self) -> None:
        """Discard all values."""
        self._moments = None

    @property
    def count(self) -> float:
        return self._current.count

    @property
    def mean(self) -> Tensor:
        """In float64, on the CPU; NaN without values."""
        return self._current.mean.clone() if self.count else torch.full_like(self._current.mean, nan)

    @property
    def variance(self) -> Tensor:
        """The mean squared deviation from the mean (biased); NaN without values."""
        return self._current.squares / self.count

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    def merged(self, context: Context) -> "Tally":
        """A tally of the values of all replicas, the same on each. All replicas must call it."""
        shape = () if self._moments is None else self._moments.mean.shape
        mine = [int(self._moments is not None), *shape, *[-1] * (AXES - len(shape))]
        rows = context.all_gather(torch.tensor(mine)).tolist()
        shapes = {tuple(n for n in lengths if n >= 0) for known, *lengths in rows if known}
        if len(shapes) > 1:
            raise ValueError(f"replicas have added values of different shapes: {sorted(map(list, shapes))}")
        merged = Tally()
        for shape in shapes:  # one, or none if no replica has added a value
            merged._moments = (self._moments or Moments.empty(shape)).over_replicas(context)
        return merged

    def state_dict(self) -> dict[str, Any]:
        return {} if self._moments is None else asdict(self._moments)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._moments = Moments(**state) if state else None

    @property
    def _current(self) -> Moments:
        return self._moments or Moments.empty(())

    def _merge(self, new: Moments) -> None:
        if new.mean.dim() > AXES:
            raise ValueError(f"a value has up to {AXES} axes, not {new.mean.dim()}")
        current = self._moments or Moments.empty(new.mean.shape)
        if current.mean.shape != new.mean.shape:
            raise ValueError(f"the tally has values of shape {list(current.mean.shape)}, not {list(new.mean.shape)}")
        self._moments = current.merged(new)


def _float64(value: float | Tensor) -> Tensor:
    return torch.as_tensor(value).detach().cpu().to(torch.float64)
