"""The frequencies of symbols as a table that is sent: which symbols occur, and the quantized frequency of each."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core import PayloadError
from ..kernels import gaps
from ..kernels.bits import packed_bytes
from ..wire.varints import Reader, encode_varint
from .model import Integers, Model

LEVELS = 4  # per halving of the probability: rounding to them costs 0.002 bits per symbol
HALVINGS = np.array([2**32, 3_611_622_602, 3_037_000_499, 2_553_802_833])  # 2**32 / 2**(i / LEVELS), rounded down
RAREST = LEVELS * 32 - 1
WITHOUT_GAPS, WITH_GAPS = 0, 1


@dataclass(frozen=True, repr=False)
class Histogram(Model):
    """A table of the frequencies of symbols, in steps of a quarter of a halving."""

    code = 2

    def fit(self, counts: Integers) -> bytes | None:
        fit = self.fit_with_weights(counts)
        return None if fit is None else fit[0]

    def fit_with_weights(self, counts: Integers) -> tuple[bytes, Integers] | None:
        present = np.flatnonzero(counts)
        if len(present) == 0:
            return None
        levels = np.round(LEVELS * np.log2(counts.sum() / counts[present])).astype(np.int64).clip(0, RAREST)
        first, last = int(present[0]), int(present[-1])
        parameters = bytearray(encode_varint(first) + encode_varint(last - first))
        if len(present) == last - first + 1:
            parameters.append(WITHOUT_GAPS)
        else:
            parameters.append(WITH_GAPS)
            parameters += _rice(present - first, last - first + 1)
        # Adjacent symbols have similar frequencies, so differences are coded; signs are folded into the lowest bit.
        steps = np.diff(levels, prepend=0)
        positive = np.where(steps >= 0, 2 * steps, -2 * steps - 1)
        positions = np.cumsum(positive + 1) - 1
        return bytes(parameters + _rice(positions, int(positions[-1]) + 1)), _weights(present, levels, len(counts))

    @staticmethod
    def weights(parameters: bytes, alphabet: int) -> tuple[Integers, int]:
        reader = Reader(parameters)
        first, more, form = reader.number(), reader.number(), reader.byte()
        if first + more >= alphabet or form not in (WITHOUT_GAPS, WITH_GAPS):
            raise PayloadError(
                f"a table of the symbols {first} to {first + more} does not fit an alphabet of {alphabet}"
            )
        present = np.arange(more + 1) if form == WITHOUT_GAPS else _unrice(reader, more + 1)
        positions = _unrice(reader, (2 * RAREST + 1) * (more + 1))
        if len(positions) != len(present) or len(present) == 0:
            raise PayloadError(f"a table has {len(present)} symbols, but {len(positions)} frequencies")
        positive = np.diff(positions, prepend=-1) - 1
        levels = np.cumsum(np.where(positive % 2 == 0, positive // 2, -(positive + 1) // 2))
        if levels.min() < 0 or levels.max() > RAREST:
            raise PayloadError("a table has frequencies out of range")
        return _weights(first + present, levels, alphabet), reader.used


def _weights(present: Integers, levels: Integers, alphabet: int) -> Integers:
    weights = np.zeros(alphabet, np.int64)
    weights[present] = np.maximum(HALVINGS[levels % LEVELS] >> (levels // LEVELS), 1)
    return weights


def _rice(positions: Integers, size: int) -> bytes:
    """Rice-code increasing positions."""
    rests, lows = gaps.encode(torch.from_numpy(positions), size)
    return encode_varint(len(rests)) + bytes(rests.numpy()) + bytes(lows.numpy())


def _unrice(reader: Reader, size: int) -> Integers:
    rests = reader.take(reader.number())
    low = reader.byte()
    lows = reader.take(packed_bytes(int.from_bytes(rests).bit_count(), min(low, 64)))
    positions: Integers = gaps.decode(_bytes(rests), _bytes(bytes([low]) + lows), size).numpy()
    return positions


def _bytes(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())
