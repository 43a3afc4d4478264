"""What both coders have to do: symbols come back, to the same bits from loops and twins, and damage is harmless."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from thinwire import PayloadError
from thinwire.kernels import huffman, rans
from thinwire.kernels.frequencies import count_symbols, scaled

from .symbol_rows import ALPHABETS, KINDS, LARGE, SMALL, Symbols, drawn
from .twins import THREADS, on_threads, outcome, plainly

both_coders = pytest.mark.parametrize("coder", [huffman, rans], ids=["huffman", "rans"])
Frequencies = NDArray[np.int64]


def known(symbols: Symbols, alphabet: int) -> Frequencies:
    counts = count_symbols(symbols, alphabet)
    return scaled(counts if len(symbols) else counts + 1)


@both_coders
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_few_symbols_come_back_from_the_same_bytes(coder: ModuleType, kind: str, alphabet: int) -> None:
    for size in SMALL:
        symbols = drawn(kind, size, alphabet)
        check(coder, symbols, known(symbols, alphabet), (1, 3))


@both_coders
@pytest.mark.parametrize(("kind", "alphabet"), [("uniform", 65_536), ("skewed", 256), ("extremely skewed", 1000)])
def test_many_symbols_come_back(coder: ModuleType, kind: str, alphabet: int) -> None:
    for size in LARGE:
        symbols = drawn(kind, size, alphabet)
        frequencies = known(symbols, alphabet)
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
def test_twins_code_many_symbols_to_the_same_bytes(coder: ModuleType, size: int, kind: str, alphabet: int) -> None:
    symbols = drawn(kind, size, alphabet)
    check(coder, symbols, known(symbols, alphabet), ())


@both_coders
@pytest.mark.parametrize("kind", KINDS)
def test_twins_code_many_chunks_to_the_same_bytes(
    coder: ModuleType, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coder, "CHUNK", 2048)
    for size in (2047, 2048, 2049, 6 * 2048, 6 * 2048 + 1023, 6 * 2048 + 1029):
        symbols = drawn(kind, size, 256)
        check(coder, symbols, known(symbols, 256), THREADS)


@both_coders
def test_all_symbols_of_the_largest_alphabet_come_back(coder: ModuleType) -> None:
    symbols = np.random.default_rng(0).permutation(65_536).astype(np.uint16)
    frequencies = known(symbols, 65_536)
    assert set(frequencies.tolist()) == {1}
    data = coder.encode(symbols, frequencies)
    assert same(coder.decode(data, 65_536, frequencies, np.uint16)[0], symbols)
    assert len(data) <= 2 * 65_536 + 36


@both_coders
def test_wide_symbols_of_a_narrow_alphabet_come_back(coder: ModuleType) -> None:
    symbols = drawn("skewed", 3000, 200).astype(np.uint16)
    check(coder, symbols, known(symbols, 200), (1,))
    with pytest.raises(ValueError, match="a symbol has no frequency"):
        coder.encode(symbols + np.uint16(256), known(symbols, 200))


@both_coders
def test_narrow_symbols_of_a_wide_alphabet_are_coded(coder: ModuleType) -> None:
    symbols = drawn("skewed", 3000, 256)
    frequencies = known(symbols.astype(np.uint16), 300)
    data = coder.encode(symbols, frequencies)
    assert same(coder.decode(data, 3000, frequencies, np.uint16)[0], symbols.astype(np.uint16))
    with pytest.raises(ValueError, match="300 kinds do not come as uint8"):
        coder.decode(data, 3000, frequencies, np.uint8)


@both_coders
def test_symbols_that_do_not_lie_in_a_row_are_coded_alike(coder: ModuleType) -> None:
    symbols = drawn("skewed", 3000, 256)[::2]
    frequencies = known(symbols, 256)
    assert np.array_equal(coder.encode(symbols, frequencies), coder.encode(symbols.copy(), frequencies))


@both_coders
def test_one_symbol_only_takes_nothing(coder: ModuleType) -> None:
    frequencies = known(np.full(9, 7, np.uint8), 256)
    assert len(coder.encode(np.full(100_000, 7, np.uint8), frequencies)) == 0
    decoded, used = coder.decode(np.arange(9, dtype=np.uint8), 100_000, frequencies, np.uint8)
    assert used == 0
    assert same(decoded, np.full(100_000, 7, np.uint8))


@both_coders
@pytest.mark.parametrize("at", [0, 700, 1500, 2047, 2999])
@pytest.mark.parametrize("unknown", [3, 4, 255])
def test_a_symbol_without_a_frequency_is_refused(coder: ModuleType, at: int, unknown: int) -> None:
    symbols = drawn("uniform", 3000, 3)
    for frequencies in (known(symbols, 4), known(np.zeros(1, np.uint8), 4)):
        symbols[at] = unknown
        for size in (3000, at + 1):
            for encode in (coder.encode, lambda *given: plainly(lambda: coder.encode(*given))):
                with pytest.raises(ValueError, match="a symbol has no frequency"):
                    encode(symbols[:size], frequencies)
    with pytest.raises(ValueError, match="a symbol has no frequency"):
        coder.bits(np.array([1, 1, 1, 1]), known(drawn("uniform", 3000, 3), 4))


@both_coders
@pytest.mark.parametrize("wrong", [[], [16_383], [16_385], [16_385, -1], [8_192] * 257])
def test_frequencies_that_are_none_are_refused(coder: ModuleType, wrong: list[int]) -> None:
    for use in (
        lambda: coder.encode(np.zeros(1, np.uint8), np.array(wrong, np.int64)),
        lambda: coder.decode(np.zeros(1, np.uint8), 1, np.array(wrong, np.int64), np.uint8),
    ):
        with pytest.raises(ValueError, match="frequencies must not be negative, and together be"):
            use()


@both_coders
@pytest.mark.parametrize("kind", ["skewed", "uniform", "each half as frequent as the last"])
@pytest.mark.parametrize("alphabet", [16, 256, 1000])
def test_bits_are_told_before_coding(coder: ModuleType, kind: str, alphabet: int) -> None:
    symbols = drawn(kind, 200_003, alphabet)
    counts, frequencies = count_symbols(symbols, alphabet), known(symbols, alphabet)
    told, taken = coder.bits(counts, frequencies), 8 * len(coder.encode(symbols, frequencies))
    assert told <= taken <= 1.001 * told + 8 * 2 * 40


# Few enough bytes to damage each: in one stream with one state, and in several.
DAMAGED = [("skewed", 300, 256), ("each half as frequent as the last", 1500, 16), ("skewed", 400, 1000)]
some_to_damage = pytest.mark.parametrize(("kind", "size", "alphabet"), DAMAGED)


@both_coders
@some_to_damage
def test_every_damaged_bit_is_noticed_or_harmless(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols = drawn(kind, size, alphabet)
    frequencies = known(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    unnoticed = 0
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        unnoticed += tried(coder, data, size, frequencies, symbols.dtype, twin=bit % 97 == 0)
        data[bit // 8] ^= 1 << bit % 8
    # Where shares are alike, rANS has one symbol for another without any trace of it.
    assert unnoticed <= 0.1 * 8 * len(data) or coder is huffman


@both_coders
@some_to_damage
def test_what_is_cut_off_is_noticed(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols = drawn(kind, size, alphabet)
    frequencies = known(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    for length in range(len(data)):
        with pytest.raises(PayloadError):
            coder.decode(data[:length], size, frequencies, symbols.dtype)
        if length % 41 == 0:
            assert not tried(coder, data[:length], size, frequencies, symbols.dtype, twin=True)


@both_coders
@some_to_damage
def test_what_comes_behind_is_left_to_others(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols = drawn(kind, size, alphabet)
    frequencies = known(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    for more in range(20):
        longer = np.append(data, np.full(more, 0xFF, np.uint8))
        for decode in (coder.decode, lambda *given: plainly(lambda: coder.decode(*given))):
            decoded, used = decode(longer, size, frequencies, symbols.dtype)
            assert used == len(data)
            assert same(decoded, symbols)


@both_coders
@some_to_damage
def test_another_number_of_symbols_is_noticed_or_harmless(
    coder: ModuleType, kind: str, size: int, alphabet: int
) -> None:
    symbols = drawn(kind, size, alphabet)
    frequencies = known(symbols, alphabet)
    data = coder.encode(symbols, frequencies)
    for count in (*range(size - 30, size), *range(size + 1, size + 30), 2**20, 2**45):
        tried(coder, data, count, frequencies, symbols.dtype, twin=count % 10 == 0)


@both_coders
@some_to_damage
def test_any_bytes_are_refused_or_harmless(coder: ModuleType, kind: str, size: int, alphabet: int) -> None:
    symbols, chance = drawn(kind, size, alphabet), np.random.default_rng(7)
    frequencies = known(symbols, alphabet)
    coded = coder.encode(symbols, frequencies)
    for turn in range(1000):
        data = coded.copy()
        where = chance.integers(0, len(data), chance.integers(1, 6))
        data[where] = chance.integers(0, 256, len(where)) if turn % 2 else data[chance.permutation(where)]
        if turn % 5 == 0:
            data = np.roll(data, chance.integers(1, 9))
        if turn % 7 == 0:
            data[chance.integers(0, len(data)) :] = 0xFF * (turn % 3 > 0)
        tried(coder, data, size, frequencies, symbols.dtype, twin=turn % 40 == 0)


def check(coder: ModuleType, symbols: Symbols, frequencies: Frequencies, threads: tuple[int, ...]) -> None:
    """Loops on so many threads and twins make the same bytes of the symbols, and symbols of the bytes."""
    data = plainly(lambda: coder.encode(symbols, frequencies))
    given = data, len(symbols), frequencies, symbols.dtype
    for decode in (coder.decode, lambda *given: plainly(lambda: coder.decode(*given))):
        decoded, used = decode(*given)
        assert used == len(data)
        assert same(decoded, symbols)
    assert same(coder.encode(symbols, frequencies), data)
    for count in threads:
        with on_threads(count):
            assert same(coder.encode(symbols, frequencies), data)
            assert same(coder.decode(*given)[0], symbols)


def tried(
    coder: ModuleType, data: NDArray[np.uint8], count: int, frequencies: Frequencies, dtype: Any, twin: bool
) -> bool:
    """Whether damage is not noticed: then as many symbols come of it, of the alphabet; and of the twin the same."""
    came = outcome(lambda: coder.decode(data, count, frequencies, dtype))
    if not isinstance(came, str):
        decoded, used = came
        assert used <= len(data)
        assert len(decoded) == count
        assert (frequencies[decoded] > 0).all()
    if twin:
        other = plainly(lambda: outcome(lambda: coder.decode(data, count, frequencies, dtype)))
        assert other == came if isinstance(came, str) else same(other[0], came[0]) and other[1] == came[1]
    return not isinstance(came, str)


def same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)
