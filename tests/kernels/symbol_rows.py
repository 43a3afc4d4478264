"""Symbols that coders have to get right, by what is special about them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SIZES = (0, 1, 2, 3, 255, 1023, 1024, 65_535, 65_536, 65_537, 200_003)
SMALL = tuple(size for size in SIZES if size <= 1024)
LARGE = tuple(size for size in SIZES if size > 1024)
ALPHABETS = (1, 2, 3, 15, 16, 255, 256, 257, 1000, 65_536)

Symbols = NDArray[np.uint8] | NDArray[np.uint16]
Chance = np.random.Generator

KINDS: dict[str, Callable[[Chance, int, int], NDArray[np.int64]]] = {
    "uniform": lambda chance, size, alphabet: chance.integers(0, alphabet, size),
    "skewed": lambda chance, size, alphabet: (alphabet * chance.random(size) ** 4).astype(np.int64),
    "extremely skewed": lambda chance, size, alphabet: (
        (chance.random(size) < 2e-4) * chance.integers(0, alphabet, size)
    ),
    "each half as frequent as the last": lambda chance, size, alphabet: chance.geometric(0.5, size) - 1,
    "only one": lambda chance, size, alphabet: np.full(size, alphabet - 1),
}


def drawn(kind: str, size: int, alphabet: int) -> Symbols:
    symbols = np.minimum(KINDS[kind](np.random.default_rng(size), size, alphabet), alphabet - 1)
    return symbols.astype(np.uint8) if alphabet <= 256 else symbols.astype(np.uint16)
