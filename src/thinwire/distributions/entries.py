"""The entries that a distribution is fitted to or compared with."""

import math

import torch
from torch import Tensor

CHUNK = 1 << 19  # entries at a time, so that intermediate results stay in the cache


def centered(x: Tensor, location: float | None, sample: int | None, zeros: bool = True) -> tuple[Tensor, float]:
    """The sampled entries minus the location, and the location: their median if none is given."""
    if not x.numel():
        raise ValueError("a distribution cannot be fitted to an empty tensor")
    if not x.is_floating_point():
        raise ValueError(f"a distribution needs real floating-point numbers, not {x.dtype}")
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
    """A random entry of each of `sample` equal stretches: equal distances could coincide with the length of rows."""
    count = entries.numel()
    if sample is None or sample >= count:
        return entries
    if sample < 1:
        raise ValueError(f"a sample has 1 entry or more, not {sample!r}")
    uniform = torch.rand(sample, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    where = (uniform + torch.arange(sample, dtype=torch.float64)) * (count / sample)
    return entries.index_select(0, where.long().clamp_(max=count - 1).to(entries.device))


def not_finite() -> ValueError:
    return ValueError("the entries contain NaN or infinity: no distribution fits them")
