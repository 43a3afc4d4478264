"""Damaged entropy-coded blocks: 100,000 of them, of all models, coders and symbol widths.

Each must be refused, or decode to the requested number of symbols. A loop that reads or writes out of bounds ends the
process sooner or later; guard bytes beside the data detect writes.
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
GUARD = 4096  # bytes before and after the data that must not change
MODELS: tuple[Model | None, ...] = (None, Histogram(), GenNorm("moments"))
CODERS: tuple[Coder, ...] = (Huffman(), Rans())

Symbols = NDArray[np.uint8] | NDArray[np.uint16]


def run(times: int = TIMES) -> list[Row]:
    refused = sum(was_refused for was_refused in damaged(times))
    return [
        Row(f"damaged blocks, of {times:,}: refused, %", 100 * refused / times),
        Row(
            f"damaged blocks, of {times:,}: decoded to the requested number of symbols, %",
            100 - 100 * refused / times,
        ),
    ]


def damaged(times: int) -> Iterator[bool]:
    """Whether each damaged block was refused."""
    generator = np.random.default_rng(0)
    kinds = [
        (symbols, compress(symbols, model, coder))
        for symbols, model, coder in product(_rows(generator), MODELS, CODERS)
        if symbols.itemsize == 1 or not isinstance(model, GenNorm)
    ]
    for i in range(times):
        symbols, block = kinds[i % len(kinds)]
        yield _refused(_changed(block, generator), symbols, generator)


def _rows(generator: np.random.Generator) -> list[Symbols]:
    normal = generator.normal(128, 12, 5000).clip(0, 255)
    return [
        normal.astype(np.uint8),
        normal[:300].astype(np.uint8),
        (generator.random(3000) < 0.03).astype(np.uint8),
        np.full(2000, 9, np.uint8),
        generator.integers(0, 256, 1500).astype(np.uint8) // 3,
        (generator.random(3000) ** 6 * 3000).astype(np.uint16),
        (generator.normal(0, 1, (160, 256)) * (10 * generator.random((160, 1)) ** 4) + 100)
        .reshape(-1)[5:]
        .astype(np.uint8),
    ]


def _changed(block: bytes, generator: np.random.Generator) -> bytes:
    changed = bytearray(block)
    for _ in range(generator.integers(1, 5)):
        i = int(generator.random() ** 3 * len(changed))  # mostly near the start, which has the parameters and lengths
        if generator.random() < 0.5:
            changed[i] ^= 1 << int(generator.integers(8))
        else:
            changed[i] = int(generator.integers(256))
    if generator.random() < 0.2:
        del changed[int(generator.integers(len(changed) + 1)) :]
    elif generator.random() < 0.1:
        changed += generator.bytes(int(generator.integers(1, 40)))
    return bytes(changed)


def _refused(block: bytes, symbols: Symbols, generator: np.random.Generator) -> bool:
    count = len(symbols) if generator.random() < 0.8 else int(generator.integers(0, 20_000))
    memory = np.full(GUARD + len(block) + GUARD, 0xA5, np.uint8)
    data = memory[GUARD : GUARD + len(block)]
    data[:] = np.frombuffer(block, np.uint8)
    try:
        found, used = decompress(data, count, symbols.dtype.type)
    except PayloadError:
        return True
    finally:
        if not (memory[:GUARD] == 0xA5).all() or not (memory[-GUARD:] == 0xA5).all() or data.tobytes() != block:
            raise AssertionError("the guard bytes beside a damaged block were overwritten")
    if found.shape != (count,) or found.dtype != symbols.dtype or used > len(block):
        raise AssertionError(
            f"{found.dtype} {found.shape} were decoded from a damaged block, but {count} symbols were requested"
        )
    return False
