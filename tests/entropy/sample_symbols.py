"""Symbols as the quantizers leave them, of entries that follow a generalized normal law."""

import numpy as np
import torch
from numpy.typing import NDArray

from thinwire.entropy.grids import MINIFLOATS
from thinwire.kernels.bits import pack

Bytes = NDArray[np.uint8]


def entries(shape: float, count: int, seed: int = 0) -> NDArray[np.float64]:
    """Of scale 1: their sizes to the power of the shape follow a gamma law."""
    chance = np.random.default_rng(seed)
    sizes = chance.gamma(1 / shape, 1.0, count) ** (1 / shape)
    drawn: NDArray[np.float64] = sizes * chance.choice([-1.0, 1.0], count)
    return drawn


def integers(x: NDArray[np.float64], bits: int, scale: float) -> Bytes:
    """Rounded to steps of 1 / scale around the middle, and packed."""
    most = 2 ** (bits - 1) - 1
    codes = np.clip(np.round(x * scale), -most, most) + most
    packed: Bytes = pack(torch.from_numpy(codes.astype(np.int64)), bits).numpy()
    return packed


def floats(x: NDArray[np.float64], form: str) -> Bytes:
    """The nearest small floats, and packed."""
    grid = MINIFLOATS[form]
    codes = np.searchsorted((grid.numbers[1:] + grid.numbers[:-1]) / 2, x)
    packed: Bytes = pack(torch.from_numpy(codes), grid.bits).numpy()
    return packed


def entropy(counts: NDArray[np.int64]) -> float:
    """Bits a symbol."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares @ np.log2(shares)))


def cost(counts: NDArray[np.int64], weights: NDArray[np.int64]) -> float:
    """Bits a symbol, if all were as likely as the weights say."""
    there = counts > 0
    return float(-(counts[there] / counts.sum()) @ np.log2(weights[there] / weights.sum()))
