"""The golden cases: a tensor of exactly representable numbers, and the codecs that encode it.

After an intended change of the format (with a new VERSION in payload.py if layouts that are sent change), run

    python -m tests.golden.regenerate

from the root of the repository, and review the difference.
"""

import json
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from thinwire import (
    AdaptiveRandom,
    BinnedSign,
    Cast,
    Chain,
    Dither,
    Entropy,
    ExponentialDither,
    GenNorm,
    Histogram,
    Huffman,
    Identity,
    MiniFloat,
    NaturalCompression,
    Nonzero,
    Quantize,
    RandomK,
    Rans,
    Round,
    Shrink,
    Sign,
    SparseSign,
    Ternary,
    TopK,
)
from thinwire.extend import Codec
from thinwire.wire import payload

FILE = Path(__file__).with_name("wire.json")
SEED = 5
DTYPES = ("float32", "float64", "float16", "bfloat16")

CODECS: tuple[Codec, ...] = (
    Identity(),
    Cast("float16"),
    Cast("bfloat16"),
    RandomK(0.3),
    TopK(0.25),
    Nonzero(),
    Quantize(8),
    Quantize(5, block=16),
    Quantize(3),
    Quantize(4, stochastic=True),
    Sign(),
    Ternary(),
    RandomK(0.3, unbiased=True),
    AdaptiveRandom(0.2),
    AdaptiveRandom(0.2, unbiased=True),
    Dither(4),
    Dither(7, norm="max", block=16),
    ExponentialDither(),
    ExponentialDither(3, levels=3, norm=2),
    NaturalCompression(),
    Round(),
    Round(1.5),
    Shrink(Chain(TopK(0.25), ExponentialDither())),
    SparseSign(),
    BinnedSign(7),
    BinnedSign(100),
    MiniFloat(),
    MiniFloat("fp8-143"),
    MiniFloat("fp4-121", scaled=True),
    Entropy(),
    Entropy(Histogram(), Rans()),
    Chain(MiniFloat("fp4-121"), Entropy(GenNorm(grid="fp4-121"), Huffman())),
    Chain(RandomK(0.5), Cast("bfloat16")),
    Chain(TopK(0.25), Quantize(8)),
    Chain(Nonzero(), Ternary()),
    Chain(TopK(0.25), Quantize(8), Entropy()),
)


class Frozen(NamedTuple):
    codec: str  # its notation
    dtype: str
    sealed: str  # the payload, in hexadecimal
    decoded: str  # the bytes of the tensor that it decodes to


def tensor(dtype: str) -> Tensor:
    """Multiples of 1/8 up to 8 of different magnitudes, a third of them zero: they and their sums are exact."""
    i = torch.arange(45)
    magnitude = (i * 37 % 64 + 1) * (i % 3 != 0)
    return (magnitude * (1 - 2 * (i % 2)) / 8).to(getattr(torch, dtype)).view(5, 9)


def frozen(codec: Codec, dtype: str) -> Frozen:
    """The case as encoded and decoded now."""
    x = tensor(dtype)
    encoded = payload.encode(x, codec, SEED)
    return Frozen(repr(codec), dtype, in_hex(encoded), in_hex(payload.decode(encoded, codec, SEED, x)))


def in_hex(x: Tensor) -> str:
    return x.contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex()


def from_hex(text: str) -> Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)


def load() -> list[Frozen]:
    return [Frozen(**entry) for entry in json.loads(FILE.read_text())]


def save() -> None:
    entries = [frozen(codec, dtype)._asdict() for codec in CODECS for dtype in DTYPES]
    FILE.write_text(json.dumps(entries, indent=1) + "\n")
