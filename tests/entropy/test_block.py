"""Blocks: exact for whatever symbols there are, near what is possible, and safe whatever comes from the wire."""

import numpy as np
import pytest

from benchmarks.fuzz import damaged
from thinwire import GenNorm, Histogram, Huffman, Laplace, Normal, PayloadError, Rans
from thinwire.entropy import Coder, Model
from thinwire.entropy import block as squeezed
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
def test_symbols_come_back_exactly(size: int, model: Model | None, coder: Coder | None) -> None:
    chance = np.random.default_rng(size)
    for symbols in (
        integers(entries(0.7, size), 8, 10),
        integers(entries(1.0, size), 4, 1),
        floats(entries(0.5, size) / 100, "fp8-152"),
        floats(entries(1.0, size) * 0.6, "fp4-121"),
        np.full(size, 77, np.uint8),
        chance.integers(0, 256, size).astype(np.uint8),
        (chance.random(size) < 0.001).astype(np.uint8),
    ):
        check(symbols, model, coder)


@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("alphabet", [2, 3, 16, 255, 256, 257, 4096, 65_536])
def test_every_alphabet_comes_back_exactly(alphabet: int, coder: Coder | None) -> None:
    chance = np.random.default_rng(alphabet)
    dtype = np.uint8 if alphabet <= 256 else np.uint16
    for size in (1, 100, 30_000):
        for symbols in (chance.integers(0, alphabet, size), (alphabet * chance.random(size) ** 8).astype(np.int64)):
            check(symbols.astype(dtype), None, coder)
            check(symbols.astype(dtype), Histogram(), coder)


@pytest.mark.parametrize(("bits", "scale", "over"), [(8, 6.0, 0.016), (4, 0.5, 0.012)])
@pytest.mark.parametrize("model", [Histogram(), GenNorm()], ids=repr)
def test_huffmans_code_is_near_the_entropy_and_rans_nearer(bits: int, scale: float, over: float, model: Model) -> None:
    symbols = integers(entries(0.7, 400_000), bits, scale)
    least = least_bits(np.bincount(symbols, minlength=256)) / 8
    by_huffman, by_rans = (len(check(symbols, model, coder)) for coder in (Huffman(), Rans()))
    assert least <= by_rans < by_huffman
    assert by_huffman <= (1 + over) * least
    assert by_rans <= (1.01 if bits == 8 else 1.005) * least


def test_the_shortest_is_taken_where_nothing_is_said() -> None:
    """A law has no table, so it is for few symbols; a table is exact, so it is for many that follow no law."""
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
def test_pieces_of_different_sizes_are_told_apart(size: int) -> None:
    """As where some rows of a matrix have larger gradients than others."""
    chance = np.random.default_rng(0)
    scales = np.repeat(chance.permutation(np.geomspace(0.05, 8, -(-size // 700))), 700)[:size]
    symbols = integers(entries(1.0, size) * scales, 8, 3)
    block = check(symbols)
    assert block[0] == GROUPED
    assert check(symbols, Histogram())[0] != GROUPED, "one table was asked for"
    assert len(block) < (0.93 if size > 100_000 else 0.97) * least_bits(np.bincount(symbols, minlength=256)) / 8
    alike = check(np.random.default_rng(1).permutation(symbols))
    assert alike[0] != GROUPED, "in another order there is nothing to tell apart"


def test_groups_of_very_many_pieces_have_no_groups_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the labels of pieces come in heaps, as of a long row they would be worth groups of their own."""
    monkeypatch.setattr("thinwire.entropy.clusters.SMALLEST", 64)
    quiet, loud = integers(entries(1.0, 60_000), 8, 0.3), integers(entries(1.0, 60_000), 8, 15)
    mixed = np.where(np.repeat(np.arange(120_000 // 256 + 1) % 2 == 0, 256)[:60_000], quiet, loud)
    assert check(np.concatenate([quiet, loud, mixed, quiet]))[0] == GROUPED


def test_groups_within_groups_and_groups_that_are_not_there_are_refused() -> None:
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
    """Of few kinds of symbols and of many, which follow a law and which do not."""
    chance = np.random.default_rng(size)
    return [
        integers(entries(0.4, size), 8, 4),
        integers(entries(0.7, size), 8, 10),
        integers(entries(2.0, size), 8, 40),
        integers(entries(1.0, size), 4, 1),
        integers(entries(1.0, size), 2, 1),
        floats(entries(0.5, size) / 100, "fp8-152"),
        floats(entries(1.0, size) * 0.6, "fp4-121"),
        chance.integers(0, 256, size).astype(np.uint8),
        (chance.random(size) ** 4 * 9).astype(np.uint8),
        (chance.random(size) < 0.02).astype(np.uint8),
    ]


@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("size", [30, 100, 300, 1000, 6000])
def test_no_law_is_left_out_that_would_be_shorter(
    size: int, coder: Coder | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [compress(row, None, coder) for row in rows(size)]
    monkeypatch.setattr(squeezed, "_distribution_may_be_shorter", lambda plans, least: True)
    tried = [compress(row, None, coder) for row in rows(size)]
    assert all(
        len(left_out) <= len(found) * (1 + squeezed.SLIGHT) for left_out, found in zip(blocks, tried, strict=True)
    )


def test_of_short_rows_a_better_fit_would_save_a_dozen_bytes_or_so(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [row for size in (60, 200, 600, 2000, 4000) for row in rows(size)]
    from_moments = [compress(row, None, None) for row in several]
    monkeypatch.setattr(squeezed, "LONG", 0)
    well = [compress(row, None, None) for row in several]
    assert from_moments != well, "or nothing would be compared"
    assert max(len(short) - len(found) for short, found in zip(from_moments, well, strict=True)) <= 16


def test_rans_is_taken_where_huffmans_whole_bits_are_too_many() -> None:
    rare = (np.random.default_rng(0).random(50_000) < 0.02).astype(np.uint8)
    assert check(rare)[0] & 15 == Rans().code
    assert len(check(rare)) < 0.2 * len(check(rare, coder=Huffman()))
    usual = integers(entries(1.0, 50_000), 8, 10)
    assert check(usual)[0] & 15 == Huffman().code


def test_a_symbol_that_a_sample_missed_is_not_lost() -> None:
    symbols = floats(entries(1.0, 50_000) / 100, "fp8-152")
    symbols[7] = 255  # stands for what is not a number
    for model in (GenNorm(grid="fp8-152", sample=500), GenNorm(grid="fp8-152")):
        assert check(symbols, model)[0] == STORED


def test_one_symbol_takes_hardly_a_byte() -> None:
    for coder in (Huffman(), Rans()):
        assert len(check(np.full(100_000, 200, np.uint8), Histogram(), coder)) < 100


def test_damage_is_refused_or_gives_as_many_symbols() -> None:
    """Some of those that `python -m benchmarks fuzz` makes 100,000 of."""
    refused = sum(damaged(3000))
    assert 1500 < refused < 3000


@pytest.mark.parametrize("block", [b"", b"\x01", b"\x30abc", b"\x23abc", b"\x11\x00"])
def test_heads_that_are_unknown_or_cut_off_are_refused(block: bytes) -> None:
    with pytest.raises(PayloadError):
        decompress(as_array(block), 3, np.uint8)
