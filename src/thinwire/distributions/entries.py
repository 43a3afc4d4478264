"""The entries that a law is fitted to or compared with."""

import math

import torch
from torch import Tensor

CHUNK = 1 << 19  # entries at a time, so that what is made of them stays in the cache


def centered(x: Tensor, location: float | None, sample: int | None, zeros: bool = True) -> tuple[Tensor, float]:
    """The entries to look at, less the location, and the location: their median, if there is none."""
    if not x.numel():
        raise ValueError("there is no law of no entries")
    if not x.is_floating_point():
        raise ValueError(f"a law is of real floating-point numbers, not {x.dtype}")
    entries = sampled(x.detach().flatten(), sample).float()
    if not zeros:
        others = entries[entries != 0]
        entries = others if others.numel() else entries
    if location is None:
        location = float(entries.median())
        if not math.isfinite(location):
            raise not_finite()
    return entries - location if location else entries, location


def sampled(entries: Tensor, sample: int | None) -> Tensor:
    """One entry of each of so many equal stretches, at a place drawn in it, so as not to fall in step with rows."""
    count = entries.numel()
    if sample is None or sample >= count:
        return entries
    if sample < 1:
        raise ValueError(f"a sample has 1 entry or more, not {sample!r}")
    drawn = torch.rand(sample, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    where = (drawn + torch.arange(sample, dtype=torch.float64)) * (count / sample)
    return entries.index_select(0, where.long().clamp_(max=count - 1).to(entries.device))


def not_finite() -> ValueError:
    return ValueError("there is NaN or infinity among the entries: they follow no law")
