"""Bits per entry of entropy codes, measured on real encoded blocks, each of which is decoded and checked."""

import numpy as np
import torch
import zstandard
from torch import Tensor

import thinwire
from thinwire import Entropy, GenNorm, Histogram, Huffman, Laplace, Normal, Rans
from thinwire.lab.fit.quantizers import Form, Quantized

ENTROPY, PLAIN, ZSTD = "entropy", "Entropy()", "zstd-1"
HUFFMAN = {model: f"huffman {model}" for model in ("gennorm", "normal", "laplace", "histogram")}
RANS = {model: f"rans {model}" for model in ("gennorm", "histogram")}
CODES = (ENTROPY, *HUFFMAN.values(), *RANS.values(), PLAIN, ZSTD)


def codecs(grid: str) -> dict[str, Entropy]:
    """The entropy codecs for the symbols of a grid, by name."""
    models = {
        "gennorm": GenNorm(grid=grid),
        "normal": Normal(grid=grid),
        "laplace": Laplace(grid=grid),
        "histogram": Histogram(),
    }
    by_huffman = {name: Entropy(models[model], Huffman()) for model, name in HUFFMAN.items()}
    by_rans = {name: Entropy(models[model], Rans()) for model, name in RANS.items()}
    return {**by_huffman, **by_rans, PLAIN: Entropy()}


def bits(quantized: Quantized, form: Form) -> dict[str, float]:
    """Bits per entry, by the names in CODES, with parameters and tables but without the quantizer's scales."""
    count, packed = quantized.symbols.numel(), quantized.packed.contiguous()
    lengths = {name: _length(packed, codec, name) for name, codec in codecs(form.grid).items()}
    lengths[ZSTD] = _zstd_length(packed)
    return {ENTROPY: entropy(quantized.symbols)} | {name: 8 * length / count for name, length in lengths.items()}


def entropy(symbols: Tensor) -> float:
    """The empirical entropy of the symbols, in bits per symbol."""
    counts = np.bincount(symbols.numpy())
    shares = counts[counts > 0] / symbols.numel()
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # not -0.0


def _length(packed: Tensor, codec: Entropy, name: str) -> int:
    block, like = codec.encode((packed,), 0)
    if not torch.equal(codec.decode((block, like), 0)[0], packed):
        raise thinwire.PayloadError(f"{name} does not decode to what was encoded")
    return block.numel()


def _zstd_length(packed: Tensor) -> int:
    data = packed.numpy().tobytes()
    frame = zstandard.ZstdCompressor(level=1).compress(data)
    if zstandard.ZstdDecompressor().decompress(frame) != data:
        raise thinwire.PayloadError(f"{ZSTD} does not decode to what was encoded")
    return len(frame)
