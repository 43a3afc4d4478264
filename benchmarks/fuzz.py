"""Squeezed blocks that were damaged on their way: 100,000 of them, of all models, coders and widths of symbols.

Each must be refused, or decode to as many symbols as were asked for. A loop that read or wrote beyond its memory would
end the process sooner or later; memory beside the data is watched for it.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import Row
from thinwire import GenNorm, Histogram, Huffman, PayloadError, Rans
from thinwire.entropy import Coder, Model
from thinwire.entropy.block import compress, decompress

TIMES = 100_000
GUARD = 4096  # bytes beside the data, that must stay as they are
MODELS: tuple[Model | None, ...] = (None, Histogram(), GenNorm("moments"))
CODERS: tuple[Coder, ...] = (Huffman(), Rans())

Symbols = NDArray[np.uint8] | NDArray[np.uint16]


def run(times: int = TIMES) -> list[Row]:
    refused = sum(was_refused for was_refused in damaged(times))
    return [
        Row(f"damaged blocks, of {times:,}: refused, %", 100 * refused / times),
        Row(
            f"damaged blocks, of {times:,}: decoded to as many symbols as were asked for, %",
            100 - 100 * refused / times,
        ),
    ]


def damaged(times: int) -> Iterator[bool]:
    """Whether each damaged block was refused."""
    chance = np.random.default_rng(0)
    kinds = [
        (symbols, compress(symbols, model, coder))
        for symbols, model, coder in product(_rows(chance), MODELS, CODERS)
        if symbols.itemsize == 1 or not isinstance(model, GenNorm)
    ]
    for i in range(times):
        symbols, block = kinds[i % len(kinds)]
        yield _refused(_changed(block, chance), symbols, chance)


def _rows(chance: np.random.Generator) -> list[Symbols]:
    bell = chance.normal(128, 12, 5000).clip(0, 255)
    return [
        bell.astype(np.uint8),
        bell[:300].astype(np.uint8),
        (chance.random(3000) < 0.03).astype(np.uint8),
        np.full(2000, 9, np.uint8),
        chance.integers(0, 256, 1500).astype(np.uint8) // 3,
        (chance.random(3000) ** 6 * 3000).astype(np.uint16),
        (chance.normal(0, 1, (160, 256)) * (10 * chance.random((160, 1)) ** 4) + 100).reshape(-1)[5:].astype(np.uint8),
    ]


def _changed(block: bytes, chance: np.random.Generator) -> bytes:
    changed = bytearray(block)
    for _ in range(chance.integers(1, 5)):
        i = int(chance.random() ** 3 * len(changed))  # mostly near the front, where parameters and lengths are
        if chance.random() < 0.5:
            changed[i] ^= 1 << int(chance.integers(8))
        else:
            changed[i] = int(chance.integers(256))
    if chance.random() < 0.2:
        del changed[int(chance.integers(len(changed) + 1)) :]
    elif chance.random() < 0.1:
        changed += chance.bytes(int(chance.integers(1, 40)))
    return bytes(changed)


def _refused(block: bytes, symbols: Symbols, chance: np.random.Generator) -> bool:
    count = len(symbols) if chance.random() < 0.8 else int(chance.integers(0, 20_000))
    memory = np.full(GUARD + len(block) + GUARD, 0xA5, np.uint8)
    data = memory[GUARD : GUARD + len(block)]
    data[:] = np.frombuffer(block, np.uint8)
    try:
        found, used = decompress(data, count, symbols.dtype.type)
    except PayloadError:
        return True
    finally:
        if not (memory[:GUARD] == 0xA5).all() or not (memory[-GUARD:] == 0xA5).all() or data.tobytes() != block:
            raise AssertionError("memory beside a damaged block was written to")
    if found.shape != (count,) or found.dtype != symbols.dtype or used > len(block):
        raise AssertionError(f"{found.dtype} {found.shape} came of a damaged block, where {count} were asked for")
    return False
