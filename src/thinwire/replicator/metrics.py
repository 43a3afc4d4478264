"""Means and variances of values that were counted, on one replica or on all."""

from collections.abc import Mapping
from dataclasses import asdict
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from .context import Context
from .running_moments import Moments

AXES = 8  # of a value, at most: replicas tell each other so many lengths


class Tally:
    """Counts values, numbers or tensors of one shape, and knows their mean and variance.

    Examples:
        >>> from thinwire import Tally
        >>> accuracy = Tally()
        >>> accuracy.add(0.5, count=10)  # the mean of 10 examples
        >>> accuracy.add(1.0, count=30)
        >>> accuracy.count, accuracy.mean.item()
        (40.0, 0.875)
    """

    def __init__(self) -> None:
        self._moments: Moments | None = None  # the shape is not known before something is added

    def add(self, value: float | Tensor, count: float = 1, variance: float | Tensor = 0.0) -> None:
        """Count so many examples, whose mean is `value`, with this variance among them."""
        if not 0 <= count < inf:
            raise ValueError(f"a mean is of 0 examples or more, not of {count!r}")
        mean = _wide(value)
        self._join(Moments(float(count), mean, (_wide(variance) * float(count)).expand_as(mean)))

    def add_each(self, values: Tensor) -> None:
        """Count every value along the first axis."""
        if not values.dim():
            raise ValueError("add_each takes values along a first axis; one value is for add")
        xs = _wide(values)
        mean = xs.mean(0)
        self._join(Moments(float(len(xs)), mean, (xs - mean).square().sum(0)))

    def reset(self) -> None:
        """Begin anew."""
        self._moments = None

    @property
    def count(self) -> float:
        return self._now.count

    @property
    def mean(self) -> Tensor:
        """As float64, on the CPU; NaN if nothing was counted."""
        return self._now.mean.clone() if self.count else torch.full_like(self._now.mean, nan)

    @property
    def variance(self) -> Tensor:
        """The mean squared deviation from the mean; NaN if nothing was counted."""
        return self._now.squares / self.count

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    def merged(self, context: Context) -> "Tally":
        """A tally of what all replicas have counted, the same on each. All of them call it."""
        shape = () if self._moments is None else self._moments.mean.shape
        here = [int(self._moments is not None), *shape, *[-1] * (AXES - len(shape))]
        there = context.all_gather(torch.tensor(here)).tolist()
        shapes = {tuple(n for n in lengths if n >= 0) for known, *lengths in there if known}
        if len(shapes) > 1:
            raise ValueError(f"replicas have counted values of different shapes: {sorted(map(list, shapes))}")
        made = Tally()
        for known in shapes:
            made._moments = (self._moments or Moments.of_nothing(known)).of_all(context)
        return made

    def state_dict(self) -> dict[str, Any]:
        return {} if self._moments is None else asdict(self._moments)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._moments = Moments(**state) if state else None

    @property
    def _now(self) -> Moments:
        return self._moments or Moments.of_nothing(())

    def _join(self, new: Moments) -> None:
        if new.mean.dim() > AXES:
            raise ValueError(f"a value has up to {AXES} axes, not {new.mean.dim()}")
        now = self._moments or Moments.of_nothing(new.mean.shape)
        if now.mean.shape != new.mean.shape:
            raise ValueError(f"values of shape {list(now.mean.shape)} were counted before, not {list(new.mean.shape)}")
        self._moments = now.joined(new)


def _wide(value: float | Tensor) -> Tensor:
    return torch.as_tensor(value).detach().cpu().to(torch.float64)
