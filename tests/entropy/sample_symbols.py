"""Quantized symbols of entries with a generalized normal distribution."""

import numpy as np
import torch
from numpy.typing import NDArray

from thinwire.entropy.grids import MINIFLOATS
from thinwire.kernels.bits import pack

Bytes = NDArray[np.uint8]


def entries(shape: float, count: int, seed: int = 0) -> NDArray[np.float64]:
    """Entries of scale 1: magnitudes to the power of the shape have a gamma distribution."""
    random = np.random.default_rng(seed)
    sizes = random.gamma(1 / shape, 1.0, count) ** (1 / shape)
    sampled: NDArray[np.float64] = sizes * random.choice([-1.0, 1.0], count)
    return sampled


def integers(x: NDArray[np.float64], bits: int, scale: float) -> Bytes:
    """Entries rounded to multiples of 1 / scale, with an offset, and packed."""
    most = 2 ** (bits - 1) - 1
    codes = np.clip(np.round(x * scale), -most, most) + most
    packed: Bytes = pack(torch.from_numpy(codes.astype(np.int64)), bits).numpy()
    return packed


def floats(x: NDArray[np.float64], form: str) -> Bytes:
    """Entries rounded to small floats, and packed."""
    grid = MINIFLOATS[form]
    codes = np.searchsorted((grid.numbers[1:] + grid.numbers[:-1]) / 2, x)
    packed: Bytes = pack(torch.from_numpy(codes), grid.bits).numpy()
    return packed


def entropy(counts: NDArray[np.int64]) -> float:
    """Bits per symbol."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares @ np.log2(shares)))


def cost(counts: NDArray[np.int64], weights: NDArray[np.int64]) -> float:
    """Bits per symbol if coded with probabilities proportional to the weights (cross-entropy)."""
    present = counts > 0
    return float(-(counts[present] / counts.sum()) @ np.log2(weights[present] / weights.sum()))
