"""The coders against zstandard at its first level, on what is left of gradients after quantizing.

Some symbols are drawn from a law with heavier tails than the bell curve's, as gradients have; others are of gradients
that were captured while a small network was trained. Four bits are coded as they are packed, two in a byte. Sizes are
of whole blocks, with the tables or parameters that travel. Speeds are those of coding with frequencies that are known;
to count them, and to fit a law, are rows of their own.
"""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import zstandard
from numpy.typing import NDArray

from benchmarks.rows import Row, at_least, at_most
from benchmarks.timing import interleaved, threads_of_torch
from thinwire import GenNorm, Histogram, Huffman, Quantize, Rans
from thinwire.entropy.block import compress
from thinwire.kernels import huffman, rans
from thinwire.kernels.bits import pack, unpack
from thinwire.kernels.frequencies import count_symbols, scaled
from thinwire.lab.recording.captured import read

SIZE, SHAPE = 2**24, 0.7
SCALES = {8: 3.37, 4: 0.56}  # levels in the law's unit: entropies near 5.16 and 2.59 bits
SIZE_BARS = {8: {"Huffman": 1.6, "rANS": 1.0}, 4: {"Huffman": 1.2, "rANS": 0.5}}  # percent over the entropy
ENCODE_BAR, DECODE_BAR = 0.8, 0.5
CODERS = {"Huffman": huffman, "rANS": rans}

Bytes = NDArray[np.uint8]


def run(repeats: int = 25) -> list[Row]:
    rows = []
    for bits in SCALES:
        codes = drawn(bits)
        least = entropy(np.bincount(codes)) * len(codes)
        rows += rows_for(f"{bits} bit", pack(torch.from_numpy(codes), bits).numpy(), least, SIZE_BARS[bits], repeats)
    gradients = captured()
    for bits in SCALES:
        data, *_ = Quantize(bits).encode((gradients,), 0)
        least = entropy(np.bincount(unpack(data, gradients.numel(), bits).numpy())) * gradients.numel()
        rows += rows_for(f"{bits} bit, captured", data.numpy(), least, SIZE_BARS[bits], repeats)
    return rows


def captured() -> torch.Tensor:
    """Gradients of a small network at many points of its training, in one row."""
    with TemporaryDirectory() as folder:
        settings = (
            "--workload digits-cnn --method dense --ranks 2 --transport simulated --epochs 8 --capture 24 --quiet"
        )
        command = [sys.executable, "-m", "thinwire", "train", "--out", folder, *settings.split()]
        subprocess.run(command, check=True, capture_output=True)
        run = read(Path(folder))
        return torch.cat([run.gradient(step, name).flatten() for step in run.steps for name in run.names])


def rows_for(name: str, data: Bytes, least: float, size_bars: dict[str, float], repeats: int) -> list[Row]:
    """Sizes and speeds for these bytes, which could not take fewer bits than the least."""
    frequencies = scaled(count_symbols(data, 256))
    coded = {coder: module.encode(data, frequencies) for coder, module in CODERS.items()}
    zstd = sum(map(len, in_zstd(data, 1)))
    rows = []
    for coder, by in (("Huffman", Huffman()), ("rANS", Rans())):
        for model in (GenNorm(), Histogram()):
            told = len(compress(data, model, by))
            over = (8 * told / least - 1) * 100
            under = f"{name}, {coder} under {model!r}"
            rows.append(Row(f"{under}, % over the entropy", over, at_most(over, size_bars[coder])))
            rows.append(Row(f"{under}, zstd's bytes / its", zstd / told, at_least(zstd / told, 1)))
    told = len(compress(data, None, None))
    rows.append(Row(f"{name}, Entropy(), % over the entropy", (8 * told / least - 1) * 100))
    rows.append(Row(f"{name}, Entropy(), zstd's bytes / its", zstd / told, at_least(zstd / told, 1)))
    rows.append(Row(f"{name}, zstd, % over the entropy", (8 * zstd / least - 1) * 100))
    for threads in (1, 2):
        with threads_of_torch(threads):
            best = interleaved(jobs_for(data, frequencies, coded, threads), repeats)
        on = f"{threads} thread{'s' * (threads > 1)}"
        for what, bar in (("encode", ENCODE_BAR), ("decode", DECODE_BAR)):
            for coder in CODERS:
                ratio = best[f"zstd {what}"] / best[f"{coder} {what}"]
                judged = at_least(ratio, bar) if coder == "Huffman" else ""
                rows.append(Row(f"{name}, {coder}, {what}, speed / zstd's, {on}", ratio, judged))
        for what in ("counting", "fitting"):
            rows.append(Row(f"{name}, {what}, speed / zstd's encoding, {on}", best["zstd encode"] / best[what]))
    return rows


def jobs_for(
    data: Bytes, frequencies: NDArray[np.int64], coded: dict[str, Bytes], threads: int
) -> dict[str, Callable[[], object]]:
    packed, counts = in_zstd(data, threads), count_symbols(data, 256)
    jobs: dict[str, Callable[[], object]] = {
        "zstd encode": lambda: in_zstd(data, threads),
        "zstd decode": lambda: from_zstd(packed),
        "counting": lambda: count_symbols(data, 256),
        "fitting": lambda: GenNorm().fit(counts),
    }
    for coder, module in CODERS.items():
        jobs[f"{coder} encode"] = lambda module=module: module.encode(data, frequencies)
        jobs[f"{coder} decode"] = lambda module=module, told=coded[coder]: module.decode(
            told, len(data), frequencies, np.uint8
        )
    return jobs


def in_zstd(data: Bytes, threads: int) -> list[bytes]:
    """As many parts as threads, each coded by one."""
    parts = np.array_split(data, threads)
    if threads == 1:
        return [zstandard.ZstdCompressor(level=1).compress(data.data)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda part: zstandard.ZstdCompressor(level=1).compress(part.data), parts))


def from_zstd(parts: list[bytes]) -> list[bytes]:
    if len(parts) == 1:
        return [zstandard.ZstdDecompressor().decompress(parts[0])]
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(lambda part: zstandard.ZstdDecompressor().decompress(part), parts))


def drawn(bits: int) -> Bytes:
    """Codes of so many bits, from a generalized normal law."""
    chance = np.random.default_rng(0)
    sizes = chance.gamma(1 / SHAPE, size=SIZE) ** (1 / SHAPE)
    signed = np.where(chance.random(SIZE) < 0.5, -sizes, sizes)
    middle = 2 ** (bits - 1)
    return np.clip(np.rint(signed * SCALES[bits]) + middle, 0, 2 * middle - 1).astype(np.uint8)


def entropy(counts: NDArray[np.int64]) -> float:
    """Bits that a symbol takes at the least."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum())
