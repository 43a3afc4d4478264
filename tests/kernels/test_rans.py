"""rANS coding as docs/wire-format.md describes it, and its length against the entropy."""

import numpy as np
import pytest

from thinwire import PayloadError
from thinwire.kernels import rans
from thinwire.kernels.frequencies import count_symbols, scaled

from .symbol_rows import sample_symbols
from .twins import with_twins


def test_bytes_are_as_documented() -> None:
    # Last to first, without a word: 65536 becomes 65536 // 4096 * 16384 + 8192 + 4096, and so on.
    frequencies = np.array([8192, 4096, 4096])
    x = 2**16
    for share, start in ((4096, 12_288), (8192, 0), (4096, 8192)):
        x = x // share * 2**14 + x % share + start
    data_bytes = rans.encode(np.array([1, 0, 2], np.uint8), frequencies)
    assert data_bytes.view("<u4").tolist() == [0, x]


def test_words_are_in_the_order_of_reading() -> None:
    frequencies = scaled(np.array([1, 2**30]))
    assert frequencies.tolist() == [1, 2**14 - 1]
    x, words = 2**16, []
    for _ in range(3):  # the rare symbol: 14 bits each
        if x >= 2**18:
            words.append(x % 2**16)
            x >>= 16
        x *= 2**14
    data_bytes = rans.encode(np.zeros(3, np.uint8), frequencies)
    assert data_bytes[:8].view("<u4").tolist() == [len(words), x]
    assert data_bytes[8:].view("<u2").tolist() == words[::-1]


def test_states_of_all_chunks_precede_the_words() -> None:
    frequencies = np.array([8192, 8192])
    symbols = np.random.default_rng(0).integers(0, 2, 2**17 + 1023).astype(np.uint8)
    data_bytes = rans.encode(symbols, frequencies)
    head = data_bytes[: 4 * (9 + 2)].view("<u4")
    assert len(data_bytes) == 4 * (9 + 2) + 2 * int(head[0] + head[9])
    assert (head[[*range(1, 9), 10]] >= 2**16).all()


@pytest.mark.parametrize("alphabet", [2, 3, 256, 257, 65_536])
def test_multiplication_by_reciprocals_equals_division(alphabet: int) -> None:
    # Frequencies of all magnitudes: the loop multiplies by reciprocals, its twin divides.
    random = np.random.default_rng(alphabet)
    for turn in range(20):
        frequencies = scaled((2 ** (39 * random.random(alphabet) ** (turn + 1))).astype(np.int64))
        symbols = random.integers(0, alphabet, 1100).astype(np.uint8 if alphabet <= 256 else np.uint16)
        for some in (symbols, symbols[:64]):
            data = rans.encode(some, frequencies)
            assert np.array_equal(data, with_twins(lambda some=some, given=frequencies: rans.encode(some, given)))
            assert np.array_equal(rans.decode(data, len(some), frequencies, some.dtype)[0], some)


def test_the_largest_frequency_below_the_total_is_divided_correctly() -> None:
    for alphabet, kind in ((256, np.uint8), (1000, np.uint16)):
        frequencies = scaled(np.array([2**39, 1] + [0] * (alphabet - 2)))
        symbols = (np.random.default_rng(0).random(20_000) < 1e-3).astype(kind)
        data = rans.encode(symbols, frequencies)
        assert np.array_equal(data, with_twins(lambda some=symbols, given=frequencies: rans.encode(some, given)))
        assert np.array_equal(rans.decode(data, len(symbols), frequencies, kind)[0], symbols)


def test_impossible_states_raise() -> None:
    frequencies = np.array([8192, 8192])
    data = rans.encode(np.zeros(100, np.uint8), frequencies)
    data[4:8] = [255, 255, 0, 0]
    with pytest.raises(PayloadError, match="cannot be the states and words"):
        rans.decode(data, 100, frequencies, np.uint8)


def test_more_words_than_symbols_raise_before_memory_is_allocated() -> None:
    frequencies = np.array([8192, 8192])
    data = np.full(4000, 255, np.uint8)
    for count in (1000, 2**23):
        with pytest.raises(PayloadError, match="cannot be the states and words"):
            rans.decode(data, count, frequencies, np.uint8)
    with pytest.raises(PayloadError, match="too short for the states"):
        rans.decode(data, 2**60, frequencies, np.uint8)


@pytest.mark.parametrize("kind", ["skewed", "uniform", "each half as frequent as the last"])
@pytest.mark.parametrize(("alphabet", "percent"), [(16, 0.05), (256, 0.1), (1000, 0.2)])
def test_encoded_size_is_close_to_the_entropy(kind: str, alphabet: int, percent: float) -> None:
    symbols = sample_symbols(kind, 200_003, alphabet)
    counts = count_symbols(symbols, alphabet)
    shares = counts[counts > 0] / len(symbols)
    entropy = -len(symbols) * float((shares * np.log2(shares)).sum())
    assert 8 * len(rans.encode(symbols, scaled(counts))) <= (1 + percent / 100) * entropy + 8 * 2 * 40
