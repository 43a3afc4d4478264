"""Test vectors for kernels, by kind."""

from functools import cache

import torch
from torch import Tensor

from ..helpers import random

SIZES = (1, 2, 63, 64, 1001)
LARGE = 200_003  # enough for a sample, and for three threads


def vector(kind: str, size: int) -> Tensor:
    return _vectors(size)[kind].clone()


@cache
def _vectors(size: int) -> dict[str, Tensor]:
    return {
        "normal": random(size),
        "wide range": random(size) * random(size, seed=1).mul(5).exp(),
        "constant": torch.full((size,), -2.5),
        "zero": torch.zeros(size),
        "sparse": torch.where(random(size, seed=2) > 2.5, random(size), 0.0),
        "denormal": random(size) * 1e-41,
        "periodic": torch.arange(size).remainder(max(2, size // 2**15)).float(),
        "with ties": random(size).mul(2).round(),
        "clustered": torch.cat([random(size - size // 8) * 1e-6, random(size // 8)]),
        "huge": random(size).clamp(-1, 1) * torch.finfo(torch.float32).max,
    }


KINDS = tuple(_vectors(1))
