"""Blocks: lossless for any symbols, close to the entropy, and safe for any received bytes."""

import numpy as np
import pytest

from benchmarks.fuzz import damaged
from thinwire import GenNorm, Histogram, Huffman, Laplace, Normal, PayloadError, Rans
from thinwire.entropy import Coder, Model
from thinwire.entropy import block as block_module
from thinwire.entropy.block import GROUPED, STORED, compress, decompress
from thinwire.entropy.clusters import least_bits

from .sample_symbols import entries, floats, integers

MODELS = [None, Histogram(), GenNorm(), GenNorm("moments", sample=500), Normal(), Laplace()]
CODERS = [None, Huffman(), Rans()]


def as_array(block: bytes | bytearray) -> np.ndarray:
    return np.frombuffer(bytearray(block), np.uint8)


def check(symbols: np.ndarray, model: Model | None = None, coder: Coder | None = None) -> bytes:
    block = compress(symbols, model, coder)
    assert len(block) <= symbols.nbytes + 1
    found, used = decompress(as_array(block + b"what follows"), len(symbols), symbols.dtype.type)
    assert used == len(block)
    assert found.dtype == symbols.dtype
    assert np.array_equal(found, symbols)
    return block


@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("size", [0, 1, 2, 17, 1000, 70_000])
def test_symbols_round_trip(size: int, model: Model | None, coder: Coder | None) -> None:
    random = np.random.default_rng(size)
    for symbols in (
        integers(entries(0.7, size), 8, 10),
        integers(entries(1.0, size), 4, 1),
        floats(entries(0.5, size) / 100, "fp8-152"),
        floats(entries(1.0, size) * 0.6, "fp4-121"),
        np.full(size, 77, np.uint8),
        random.integers(0, 256, size).astype(np.uint8),
        (random.random(size) < 0.001).astype(np.uint8),
    ):
        check(symbols, model, coder)


@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("alphabet", [2, 3, 16, 255, 256, 257, 4096, 65_536])
def test_every_alphabet_round_trips(alphabet: int, coder: Coder | None) -> None:
    random = np.random.default_rng(alphabet)
    dtype = np.uint8 if alphabet <= 256 else np.uint16
    for size in (1, 100, 30_000):
        for symbols in (random.integers(0, alphabet, size), (alphabet * random.random(size) ** 8).astype(np.int64)):
            check(symbols.astype(dtype), None, coder)
            check(symbols.astype(dtype), Histogram(), coder)


@pytest.mark.parametrize(("bits", "scale", "over"), [(8, 6.0, 0.016), (4, 0.5, 0.012)])
@pytest.mark.parametrize("model", [Histogram(), GenNorm()], ids=repr)
def test_huffman_is_near_the_entropy_and_rans_nearer(bits: int, scale: float, over: float, model: Model) -> None:
    symbols = integers(entries(0.7, 400_000), bits, scale)
    least = least_bits(np.bincount(symbols, minlength=256)) / 8
    by_huffman, by_rans = (len(check(symbols, model, coder)) for coder in (Huffman(), Rans()))
    assert least <= by_rans < by_huffman
    assert by_huffman <= (1 + over) * least
    assert by_rans <= (1.01 if bits == 8 else 1.005) * least


def test_the_default_chooses_the_shortest_model() -> None:
    """A distribution has no table, which suits few symbols; a table suits many symbols that no distribution fits."""
    few = integers(entries(1.0, 600), 8, 10)
    two_heaps = np.concatenate([integers(entries(1.0, 50_000), 8, 2), integers(entries(1.0, 50_000), 8, 2) + 60])
    for symbols, best in ((few, GenNorm()), (two_heaps, Histogram())):
        block = check(symbols)
        assert block[0] >> 4 == best.code
        for model in (Histogram(), GenNorm(), Normal(), Laplace()):
            assert len(block) <= 1.02 * len(compress(symbols, model, None)) + 2
    noise = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8)
    assert check(noise)[0] == STORED


@pytest.mark.parametrize("size", [40_000, 200_000, 200_003])
def test_pieces_of_different_magnitudes_are_grouped(size: int) -> None:
    """As in a matrix with larger gradients in some rows."""
    random = np.random.default_rng(0)
    scales = np.repeat(random.permutation(np.geomspace(0.05, 8, -(-size // 700))), 700)[:size]
    symbols = integers(entries(1.0, size) * scales, 8, 3)
    block = check(symbols)
    assert block[0] == GROUPED
    assert check(symbols, Histogram())[0] != GROUPED, "a single table was requested"
    assert len(block) < (0.93 if size > 100_000 else 0.97) * least_bits(np.bincount(symbols, minlength=256)) / 8
    alike = check(np.random.default_rng(1).permutation(symbols))
    assert alike[0] != GROUPED, "after a permutation, all pieces are alike"


def test_labels_of_groups_are_not_grouped_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels of a long row are clustered, so that grouping them would pay."""
    monkeypatch.setattr("thinwire.entropy.clusters.SMALLEST", 64)
    quiet, loud = integers(entries(1.0, 60_000), 8, 0.3), integers(entries(1.0, 60_000), 8, 15)
    mixed = np.where(np.repeat(np.arange(120_000 // 256 + 1) % 2 == 0, 256)[:60_000], quiet, loud)
    assert check(np.concatenate([quiet, loud, mixed, quiet]))[0] == GROUPED


def test_nested_and_missing_groups_raise() -> None:
    symbols = np.concatenate([integers(entries(1.0, 30_000), 8, 1), integers(entries(1.0, 30_000), 8, 20)])
    block = as_array(check(symbols))
    assert block[0] == GROUPED
    for at, value in ((1, 1), (1, 9), (2, GROUPED)):
        damaged = block.copy()
        damaged[at] = value
        with pytest.raises(PayloadError):
            decompress(damaged, len(symbols), np.uint8)
    with pytest.raises(PayloadError):
        decompress(block, len(symbols) // 2, np.uint16)


def rows(size: int) -> list[np.ndarray]:
    """Rows with few and many distinct symbols, with and without a fitting distribution."""
    random = np.random.default_rng(size)
    return [
        integers(entries(0.4, size), 8, 4),
        integers(entries(0.7, size), 8, 10),
        integers(entries(2.0, size), 8, 40),
        integers(entries(1.0, size), 4, 1),
        integers(entries(1.0, size), 2, 1),
        floats(entries(0.5, size) / 100, "fp8-152"),
        floats(entries(1.0, size) * 0.6, "fp4-121"),
        random.integers(0, 256, size).astype(np.uint8),
        (random.random(size) ** 4 * 9).astype(np.uint8),
        (random.random(size) < 0.02).astype(np.uint8),
    ]


@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("size", [30, 100, 300, 1000, 6000])
def test_skipping_a_distribution_costs_at_most_the_tolerance(
    size: int, coder: Coder | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [compress(row, None, coder) for row in rows(size)]
    monkeypatch.setattr(block_module, "_distribution_may_be_shorter", lambda plans, least: True)
    with_all_fits = [compress(row, None, coder) for row in rows(size)]
    assert all(
        len(skipped) <= len(found) * (1 + block_module.SLIGHT)
        for skipped, found in zip(blocks, with_all_fits, strict=True)
    )


def test_for_short_rows_a_likelihood_fit_saves_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [row for size in (60, 200, 600, 2000, 4000) for row in rows(size)]
    from_moments = [compress(row, None, None) for row in several]
    monkeypatch.setattr(block_module, "LONG", 0)
    by_likelihood = [compress(row, None, None) for row in several]
    assert from_moments != by_likelihood, "or nothing would be compared"
    assert max(len(short) - len(found) for short, found in zip(from_moments, by_likelihood, strict=True)) <= 16


def test_rans_is_chosen_where_huffman_wastes_bits() -> None:
    rare = (np.random.default_rng(0).random(50_000) < 0.02).astype(np.uint8)
    assert check(rare)[0] & 15 == Rans().code
    assert len(check(rare)) < 0.2 * len(check(rare, coder=Huffman()))
    usual = integers(entries(1.0, 50_000), 8, 10)
    assert check(usual)[0] & 15 == Huffman().code


def test_a_symbol_outside_the_sample_is_kept() -> None:
    symbols = floats(entries(1.0, 50_000) / 100, "fp8-152")
    symbols[7] = 255  # stands for NaN
    for model in (GenNorm(grid="fp8-152", sample=500), GenNorm(grid="fp8-152")):
        assert check(symbols, model)[0] == STORED


def test_a_single_distinct_symbol_takes_less_than_100_bytes() -> None:
    for coder in (Huffman(), Rans()):
        assert len(check(np.full(100_000, 200, np.uint8), Histogram(), coder)) < 100


def test_damaged_blocks_raise_or_decode_to_the_count() -> None:
    """A part of the 100,000 cases of `python -m benchmarks fuzz`."""
    refused = sum(damaged(3000))
    assert 1500 < refused < 3000


@pytest.mark.parametrize("block", [b"", b"\x01", b"\x30abc", b"\x23abc", b"\x11\x00"])
def test_unknown_or_truncated_heads_raise(block: bytes) -> None:
    with pytest.raises(PayloadError):
        decompress(as_array(block), 3, np.uint8)
