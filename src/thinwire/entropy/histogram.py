"""How often each symbol was there, as a table that travels: which symbols there are, and how rare each is."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core import PayloadError
from ..kernels import gaps
from ..kernels.bits import packed_bytes
from ..wire.varints import Reader, written
from .model import Integers, Model

LEVELS = 4  # to a halving of the probability: rounding to them costs 0.002 bits a symbol
HALVINGS = np.array([2**32, 3_611_622_602, 3_037_000_499, 2_553_802_833])  # 2**32 / 2**(i / LEVELS), rounded down
RAREST = LEVELS * 32 - 1
WITHOUT_GAPS, WITH_GAPS = 0, 1


@dataclass(frozen=True, repr=False)
class Histogram(Model):
    """No law at all: how often each symbol is there, in steps of a quarter of a halving."""

    code = 2

    def fit(self, counts: Integers) -> bytes | None:
        told = self.told(counts)
        return None if told is None else told[0]

    def told(self, counts: Integers) -> tuple[bytes, Integers] | None:
        there = np.flatnonzero(counts)
        if len(there) == 0:
            return None
        rare = np.round(LEVELS * np.log2(counts.sum() / counts[there])).astype(np.int64).clip(0, RAREST)
        first, last = int(there[0]), int(there[-1])
        told = bytearray(written(first) + written(last - first))
        if len(there) == last - first + 1:
            told.append(WITHOUT_GAPS)
        else:
            told.append(WITH_GAPS)
            told += _rice(there - first, last - first + 1)
        # Neighbors are about as rare as each other; what alternates in sign is told as what does not.
        steps = np.diff(rare, prepend=0)
        positive = np.where(steps >= 0, 2 * steps, -2 * steps - 1)
        places = np.cumsum(positive + 1) - 1
        return bytes(told + _rice(places, int(places[-1]) + 1)), _weights(there, rare, len(counts))

    @staticmethod
    def weights(told: bytes, alphabet: int) -> tuple[Integers, int]:
        reader = Reader(told)
        first, more, form = reader.number(), reader.number(), reader.byte()
        if first + more >= alphabet or form not in (WITHOUT_GAPS, WITH_GAPS):
            raise PayloadError(f"a table of the symbols {first} to {first + more}, where there are {alphabet}")
        there = np.arange(more + 1) if form == WITHOUT_GAPS else _unrice(reader, more + 1)
        places = _unrice(reader, (2 * RAREST + 1) * (more + 1))
        if len(places) != len(there) or len(there) == 0:
            raise PayloadError(f"a table tells of {len(there)} symbols, and how rare {len(places)} are")
        positive = np.diff(places, prepend=-1) - 1
        rare = np.cumsum(np.where(positive % 2 == 0, positive // 2, -(positive + 1) // 2))
        if rare.min() < 0 or rare.max() > RAREST:
            raise PayloadError("a table tells of impossible symbols")
        return _weights(first + there, rare, alphabet), reader.used


def _weights(there: Integers, rare: Integers, alphabet: int) -> Integers:
    weights = np.zeros(alphabet, np.int64)
    weights[there] = np.maximum(HALVINGS[rare % LEVELS] >> (rare // LEVELS), 1)
    return weights


def _rice(places: Integers, size: int) -> bytes:
    """Increasing places, by the gaps between them."""
    rests, lows = gaps.encode(torch.from_numpy(places), size)
    return written(len(rests)) + bytes(rests.numpy()) + bytes(lows.numpy())


def _unrice(reader: Reader, size: int) -> Integers:
    rests = reader.take(reader.number())
    low = reader.byte()
    lows = reader.take(packed_bytes(int.from_bytes(rests).bit_count(), min(low, 64)))
    places: Integers = gaps.decode(_bytes(rests), _bytes(bytes([low]) + lows), size).numpy()
    return places


def _bytes(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())
