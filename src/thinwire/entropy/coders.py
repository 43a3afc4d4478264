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
    """Encodes symbols in about as many bits as their frequencies allow, and decodes them."""

    code: ClassVar[int]  # on the wire

    @abstractmethod
    def encode(self, symbols: Symbols, frequencies: Integers) -> Bytes: ...

    @abstractmethod
    def decode(self, data: Bytes, count: int, frequencies: Integers, dtype: type[Any]) -> tuple[Symbols, int]:
        """The `count` symbols, and the number of bytes they took; raises PayloadError."""

    @abstractmethod
    def bits(self, counts: Integers, frequencies: Integers) -> int:
        """The bits that symbols with these counts take."""


@dataclass(frozen=True, repr=False)
class Huffman(Coder):
    """Huffman coding: integer bits per symbol. Fastest, and within 1 % of the entropy if no symbol is very common."""

    code = 1

    def encode(self, symbols: Symbols, frequencies: Integers) -> Bytes:
        return huffman.encode(symbols, frequencies)

    def decode(self, data: Bytes, count: int, frequencies: Integers, dtype: type[Any]) -> tuple[Symbols, int]:
        return huffman.decode(data, count, frequencies, dtype)

    def bits(self, counts: Integers, frequencies: Integers) -> int:
        return huffman.bits(counts, frequencies)


@dataclass(frozen=True, repr=False)
class Rans(Coder):
    """rANS (asymmetric numeral systems): fractional bits per symbol, so very common symbols take almost none."""

    code = 2

    def encode(self, symbols: Symbols, frequencies: Integers) -> Bytes:
        return rans.encode(symbols, frequencies)

    def decode(self, data: Bytes, count: int, frequencies: Integers, dtype: type[Any]) -> tuple[Symbols, int]:
        return rans.decode(data, count, frequencies, dtype)

    def bits(self, counts: Integers, frequencies: Integers) -> int:
        return rans.bits(counts, frequencies)
