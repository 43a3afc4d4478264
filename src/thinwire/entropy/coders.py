from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.described import Described
from ..kernels import huffman, rans
from .model import Integers

Symbols = NDArray[Any]  # of 8 or 16 bits
Bytes = NDArray[np.uint8]


class Coder(Described, ABC):
    """Writes symbols in about as many bits as their frequencies say, and reads them again."""

    code: ClassVar[int]  # on the wire

    @abstractmethod
    def encode(self, symbols: Symbols, frequencies: Integers) -> Bytes: ...

    @abstractmethod
    def decode(self, data: Bytes, count: int, frequencies: Integers, dtype: type[Any]) -> tuple[Symbols, int]:
        """So many symbols, and how many bytes they took; or a PayloadError."""

    @abstractmethod
    def bits(self, counts: Integers, frequencies: Integers) -> int:
        """What symbols take that are there so often."""


@dataclass(frozen=True, repr=False)
class Huffman(Coder):
    """A whole number of bits for each symbol: the fastest, and within a percent where no symbol is very common."""

    code = 1

    def encode(self, symbols: Symbols, frequencies: Integers) -> Bytes:
        return huffman.encode(symbols, frequencies)

    def decode(self, data: Bytes, count: int, frequencies: Integers, dtype: type[Any]) -> tuple[Symbols, int]:
        return huffman.decode(data, count, frequencies, dtype)

    def bits(self, counts: Integers, frequencies: Integers) -> int:
        return huffman.bits(counts, frequencies)


@dataclass(frozen=True, repr=False)
class Rans(Coder):
    """Asymmetric numeral systems: fractions of bits, so that very common symbols take hardly any."""

    code = 2

    def encode(self, symbols: Symbols, frequencies: Integers) -> Bytes:
        return rans.encode(symbols, frequencies)

    def decode(self, data: Bytes, count: int, frequencies: Integers, dtype: type[Any]) -> tuple[Symbols, int]:
        return rans.decode(data, count, frequencies, dtype)

    def bits(self, counts: Integers, frequencies: Integers) -> int:
        return rans.bits(counts, frequencies)
