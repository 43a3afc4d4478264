"""Both coders: symbols round-trip, loops and twins agree to the bit, and damaged bytes raise or decode safely."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from thinwire import PayloadError
from thinwire.kernels import huffman, rans
from thinwire.kernels.frequencies import count_symbols, scaled

from .symbol_rows import ALPHABETS, KINDS, LARGE, SMALL, Symbols, sample_symbols
from .twins import THREADS, on_threads, result_or_error, with_twins

both_coders = pytest.mark.parametrize("coder", [huffman, rans], ids=["huffman", "rans"])
Frequencies = NDArray[np.int64]


def frequencies_of(symbols: Symbols, alphabet: int) -> Frequencies:
    counts = count_symbols(symbols, alphabet)
    return scaled(counts if len(symbols) else counts + 1)


@both_coders
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_few_symbols_round_trip_with_the_same_bytes(coder: ModuleType, kind: str, alphabet: int) -> None:
    for size in SMALL:
        symbols = sample_symbols(kind, size, alphabet)
        check(coder, symbols, frequencies_of(symbols, alphabet), (1, 3))


@both_coders
@pytest.mark.parametrize(("kind", "alphabet"), [("uniform", 65_536), ("skewed", 256), ("extremely skewed", 1000)])
def test_many_symbols_round_trip(coder: ModuleType, kind: str, alphabet: int) -> None:
    for size in LARGE:
        symbols = sample_symbols(kind, size, alphabet)
        frequencies = frequencies_of(symbols, alphabet)
        data = coder.encode(symbols, frequencies)
        for threads in THREADS:
            with on_threads(threads):
                assert np.array_equal(coder.encode(symbols, frequencies), data)
                decoded, used = coder.decode(data, size, frequencies, symbols.dtype)
            assert used == len(data)
            assert same(decoded, symbols)


@both_coders
@pytest.mark.parametrize(
    ("size", "kind", "alphabet"),
    [
        (65_535, "skewed", 15),
        (65_536, "each half as frequent as the last", 256),
        (65_537, "uniform", 257),
        (200_003, "skewed", 1000),
    ],
)
def test_twins_encode_many_symbols_to_the_same_bytes(coder: ModuleType, size: int, kind: str, alphabet: int) -> None:
    symbols = sample_symbols(kind, size, alphabet)
    check(coder, symbols, frequencies_of(symbols, alphabet), ())


@both_coders
@pytest.mark.parametrize("kind", KINDS)
def test_twins_encode_many_chunks_to_the_same_bytes(
    coder: ModuleType, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coder, "CHUNK", 2048)
    for size in (2047, 2048, 2049, 6 * 2048, 6 * 2048 + 1023, 6 * 2048 + 1029):
        symbols = sample_symbols(kind, size, 256)
        check(coder, symbols, frequencies_of(symbols, 256), THREADS)


@both_coders
def test_all_symbols_of_the_largest_alphabet_round_trip(coder: ModuleType) -> None:
    symbols = np.random.default_rng(0).permutation(65_536).astype(np.uint16)
    frequencies = frequencies_of(symbols, 65_536)
    assert set(frequencies.tolist()) == {1}
    data = coder.encode(symbols, frequencies)
    assert same(coder.decode(data, 65_536, frequencies, np.uint16)[0], symbols)
    assert len(data) <= 2 * 65_536 + 36


@both_coders
def test_wide_symbols_of_a_narrow_alphabet_round_trip(coder: ModuleType) -> None:
    symbols = sample_symbols("skewed", 3000, 200).astype(np.uint16)
    check(coder, symbols, frequencies_of(symbols, 200), (1,))
    with pytest.raises(ValueError, match="a symbol has no frequency"):
        coder.encode(symbols + np.uint16(256), frequencies_of(symbols, 200))


@both_coders
def test_narrow_symbols_of_a_wide_alphabet_round_trip(coder: ModuleType) -> None:
    symbols = sample_symbols("skewed", 3000, 256)
    frequencies = frequencies_of(symbols.astype(np.uint16), 300)
    data = coder.encode(symbols, frequencies)
    assert same(coder.decode(data, 3000, frequencies, np.uint16)[0], symbols.astype(np.uint16))
    with pytest.raises(ValueError, match="300 symbols cannot be decoded as uint8"):
        coder.decode(data, 3000, frequencies, np.uint8)


@both_coders
def test_strided_symbols_encode_to_the_same_bytes(coder: ModuleType) -> None:
    symbols = sample_symbols("skewed", 3000, 256)[::2]
    frequencies = frequencies_of(symbols, 256)
    assert np.array_equal(coder.encode(symbols, frequencies), coder.encode(symbols.copy(), frequencies))


@both_coders
def test_a_single_distinct_symbol_takes_no_bytes(coder: ModuleType) -> None:
    frequencies = frequencies_of(np.full(9, 7, np.uint8), 256)
    assert len(coder.encode(np.full(100_000, 7, np.uint8), frequencies)) == 0
    decoded, used = coder.decode(np.arange(9, dtype=np.uint8), 100_000, frequencies, np.uint8)
    assert used == 0
    assert same(decoded, np.full(100_000, 7, np.uint8))


@both_coders
@pytest.mark.parametrize("at", [0, 700, 1500, 2047, 2999])
@pytest.mark.parametrize("unknown", [3, 4, 255])
def test_a_symbol_without_a_frequency_is_an_error(coder: ModuleType, at: int, unknown: int) -> None:
    symbols = sample_symbols("uniform", 3000, 3)
    for frequencies in (frequencies_of(symbols, 4), frequencies_of(np.zeros(1, np.uint8), 4)):
        symbols[at] = unknown
        for size in (3000, at + 1):
            for encode in (coder.encode, lambda *arguments: with_twins(lambda: coder.encode(*arguments))):
                with pytest.raises(ValueError, match="a symbol has no frequency"):
                    encode(symbols[:size], frequencies)
    with pytest.raises(ValueError, match="a symbol has no frequency"):
        coder.bits(np.array([1, 1, 1, 1]), frequencies_of(sample_symbols("uniform", 3000, 3), 4))


@both_coders
@pytest.mark.parametrize("wrong", [[], [16_383], [16_385], [16_385, -1], [8_192] * 257])
def test_invalid_frequencies_are_an_error(coder: ModuleType, wrong: list[int]) -> None:
    for use in (
        lambda: coder.encode(np.zeros(1, np.uint8), np.array(wrong, np.int64)),
        lambda: coder.decode(np.zeros(1, np.uint8), 1, np.array(wrong, np.int64), np.uint8),
    ):
        with pytest.raises(ValueError, match="frequencies must not be negative, and must sum to"):
            use()


@both_coders
@pytest.mark.parametrize("kind", ["skewed", "uniform", "each half as frequent as the last"])
@pytest.mark.parametrize("alphabet", [16, 256, 1000])
def test_predicted_bits_match_the_encoded_size(coder: ModuleType, kind: str, alphabet: int) -> None:
    symbols = sample_symbols(kind, 200_003, alphabet)
    counts, frequencies = count_symbols(symbols, alphabet), frequencies_of(symbols, alphabet)
    predicted, taken = coder.bits(counts, frequencies), 8 * len(coder.encode(symbols, frequencies))
    assert predicted <= taken <= 1.001 * predicted + 8 * 2 * 40


# Few enough bytes to damage each bit: one stream with one state, and several.
DAMAGED = [("skewed", 300, 256), ("each half as frequent as the last", 1500, 16), ("skewed", 400, 1000)]
some_to_damage = pytest.mark.parametrize(("kind", "size", "alphabet"), DAMAGED)


@both_coders
@some_to_damage
def test_every_flipped_bit_raises_or_decodes_safely(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols = sample_symbols(kind, size, alphabet)
    frequencies = frequencies_of(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    undetected = 0
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        undetected += decodes(coder, data, size, frequencies, symbols.dtype, twin=bit % 97 == 0)
        data[bit // 8] ^= 1 << bit % 8
    # Between symbols of equal frequency, rANS cannot detect a swap.
    assert undetected <= 0.1 * 8 * len(data) or coder is huffman


@both_coders
@some_to_damage
def test_truncated_data_raises(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols = sample_symbols(kind, size, alphabet)
    frequencies = frequencies_of(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    for length in range(len(data)):
        with pytest.raises(PayloadError):
            coder.decode(data[:length], size, frequencies, symbols.dtype)
        if length % 41 == 0:
            assert not decodes(coder, data[:length], size, frequencies, symbols.dtype, twin=True)


@both_coders
@some_to_damage
def test_trailing_bytes_are_not_consumed(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols = sample_symbols(kind, size, alphabet)
    frequencies = frequencies_of(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    for more in range(20):
        longer = np.append(data, np.full(more, 0xFF, np.uint8))
        for decode in (coder.decode, lambda *arguments: with_twins(lambda: coder.decode(*arguments))):
            decoded, used = decode(longer, size, frequencies, symbols.dtype)
            assert used == len(data)
            assert same(decoded, symbols)


@both_coders
@some_to_damage
def test_a_wrong_count_raises_or_decodes_safely(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols = sample_symbols(kind, size, alphabet)
    frequencies = frequencies_of(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    for count in (*range(size - 30, size), *range(size + 1, size + 30), 2**20, 2**45):
        decodes(coder, data, count, frequencies, symbols.dtype, twin=count % 10 == 0)


@both_coders
@some_to_damage
def test_random_damage_raises_or_decodes_safely(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols, random = sample_symbols(kind, size, alphabet), np.random.default_rng(7)
    frequencies = frequencies_of(symbols, alphabet)
    coded = coder.encode(symbols, frequencies)
    for turn in range(1000):
        data = coded.copy()
        where = random.integers(0, len(data), random.integers(1, 6))
        data[where] = random.integers(0, 256, len(where)) if turn % 2 else data[random.permutation(where)]
        if turn % 5 == 0:
            data = np.roll(data, random.integers(1, 9))
        if turn % 7 == 0:
            data[random.integers(0, len(data)) :] = 0xFF * (turn % 3 > 0)
        decodes(coder, data, size, frequencies, symbols.dtype, twin=turn % 40 == 0)


def check(coder: ModuleType, symbols: Symbols, frequencies: Frequencies, threads: tuple[int, ...]) -> None:
    """Checks that loops, on each number of threads, and twins encode to the same bytes and decode them."""
    data = with_twins(lambda: coder.encode(symbols, frequencies))
    arguments = data, len(symbols), frequencies, symbols.dtype
    for decode in (coder.decode, lambda *arguments: with_twins(lambda: coder.decode(*arguments))):
        decoded, used = decode(*arguments)
        assert used == len(data)
        assert same(decoded, symbols)
    assert same(coder.encode(symbols, frequencies), data)
    for count in threads:
        with on_threads(count):
            assert same(coder.encode(symbols, frequencies), data)
            assert same(coder.decode(*arguments)[0], symbols)


def decodes(
    coder: ModuleType, data: NDArray[np.uint8], count: int, frequencies: Frequencies, dtype: Any, twin: bool
) -> bool:
    """Whether data decodes: then to `count` symbols of the alphabet. Checks that the twin gives the same result."""
    result = result_or_error(lambda: coder.decode(data, count, frequencies, dtype))
    if not isinstance(result, str):
        decoded, used = result
        assert used <= len(data)
        assert len(decoded) == count
        assert (frequencies[decoded] > 0).all()
    if twin:
        other = with_twins(lambda: result_or_error(lambda: coder.decode(data, count, frequencies, dtype)))
        assert other == result if isinstance(result, str) else same(other[0], result[0]) and other[1] == result[1]
    return not isinstance(result, str)


def same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)
