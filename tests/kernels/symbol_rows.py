"""Rows of symbols for coders, by kind."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SIZES = (0, 1, 2, 3, 255, 1023, 1024, 65_535, 65_536, 65_537, 200_003)
SMALL = tuple(size for size in SIZES if size <= 1024)
LARGE = tuple(size for size in SIZES if size > 1024)
ALPHABETS = (1, 2, 3, 15, 16, 255, 256, 257, 1000, 65_536)

Symbols = NDArray[np.uint8] | NDArray[np.uint16]
Random = np.random.Generator

KINDS: dict[str, Callable[[Random, int, int], NDArray[np.int64]]] = {
    "uniform": lambda random, size, alphabet: random.integers(0, alphabet, size),
    "skewed": lambda random, size, alphabet: (alphabet * random.random(size) ** 4).astype(np.int64),
    "extremely skewed": lambda random, size, alphabet: (
        (random.random(size) < 2e-4) * random.integers(0, alphabet, size)
    ),
    "each half as frequent as the last": lambda random, size, alphabet: random.geometric(0.5, size) - 1,
    "only one": lambda random, size, alphabet: np.full(size, alphabet - 1),
}


def sample_symbols(kind: str, size: int, alphabet: int) -> Symbols:
    symbols = np.minimum(KINDS[kind](np.random.default_rng(size), size, alphabet), alphabet - 1)
    return symbols.astype(np.uint8) if alphabet <= 256 else symbols.astype(np.uint16)
