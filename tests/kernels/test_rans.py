"""What is told in docs/wire-format.md of rANS, and how much longer than the entropy it is."""

import numpy as np
import pytest

from thinwire import PayloadError
from thinwire.kernels import rans
from thinwire.kernels.frequencies import count_symbols, scaled

from .symbol_rows import drawn
from .twins import plainly


def test_the_bytes_are_as_described() -> None:
    # Last to first, without a word: 65536 becomes 65536 // 4096 * 16384 + 8192 + 4096, and so on.
    frequencies = np.array([8192, 4096, 4096])
    x = 2**16
    for share, start in ((4096, 12_288), (8192, 0), (4096, 8192)):
        x = x // share * 2**14 + x % share + start
    told = rans.encode(np.array([1, 0, 2], np.uint8), frequencies)
    assert told.view("<u4").tolist() == [0, x]


def test_words_come_in_the_order_in_which_they_are_read() -> None:
    frequencies = scaled(np.array([1, 2**30]))
    assert frequencies.tolist() == [1, 2**14 - 1]
    x, words = 2**16, []
    for _ in range(3):  # the rare symbol: 14 bits each
        if x >= 2**18:
            words.append(x % 2**16)
            x >>= 16
        x *= 2**14
    told = rans.encode(np.zeros(3, np.uint8), frequencies)
    assert told[:8].view("<u4").tolist() == [len(words), x]
    assert told[8:].view("<u2").tolist() == words[::-1]


def test_states_come_chunk_by_chunk_before_all_words() -> None:
    frequencies = np.array([8192, 8192])
    symbols = np.random.default_rng(0).integers(0, 2, 2**17 + 1023).astype(np.uint8)
    told = rans.encode(symbols, frequencies)
    head = told[: 4 * (9 + 2)].view("<u4")
    assert len(told) == 4 * (9 + 2) + 2 * int(head[0] + head[9])
    assert (head[[*range(1, 9), 10]] >= 2**16).all()


@pytest.mark.parametrize("alphabet", [2, 3, 256, 257, 65_536])
def test_no_division_is_rounded_wrongly(alphabet: int) -> None:
    # Shares of all sizes: what is multiplied in loops is divided in the twin.
    chance = np.random.default_rng(alphabet)
    for turn in range(20):
        frequencies = scaled((2 ** (39 * chance.random(alphabet) ** (turn + 1))).astype(np.int64))
        symbols = chance.integers(0, alphabet, 1100).astype(np.uint8 if alphabet <= 256 else np.uint16)
        for some in (symbols, symbols[:64]):
            data = rans.encode(some, frequencies)
            assert np.array_equal(data, plainly(lambda some=some, given=frequencies: rans.encode(some, given)))
            assert np.array_equal(rans.decode(data, len(some), frequencies, some.dtype)[0], some)


def test_the_largest_share_that_is_not_the_whole_is_divided_rightly() -> None:
    for alphabet, kind in ((256, np.uint8), (1000, np.uint16)):
        frequencies = scaled(np.array([2**39, 1] + [0] * (alphabet - 2)))
        symbols = (np.random.default_rng(0).random(20_000) < 1e-3).astype(kind)
        data = rans.encode(symbols, frequencies)
        assert np.array_equal(data, plainly(lambda some=symbols, given=frequencies: rans.encode(some, given)))
        assert np.array_equal(rans.decode(data, len(symbols), frequencies, kind)[0], symbols)


def test_states_that_cannot_be_are_refused() -> None:
    frequencies = np.array([8192, 8192])
    data = rans.encode(np.zeros(100, np.uint8), frequencies)
    data[4:8] = [255, 255, 0, 0]
    with pytest.raises(PayloadError, match="cannot be the states and words"):
        rans.decode(data, 100, frequencies, np.uint8)


def test_more_words_than_symbols_are_refused_before_any_room_is_made() -> None:
    frequencies = np.array([8192, 8192])
    data = np.full(4000, 255, np.uint8)
    for count in (1000, 2**23):
        with pytest.raises(PayloadError, match="cannot be the states and words"):
            rans.decode(data, count, frequencies, np.uint8)
    with pytest.raises(PayloadError, match="cannot begin with the states"):
        rans.decode(data, 2**60, frequencies, np.uint8)


@pytest.mark.parametrize("kind", ["skewed", "uniform", "each half as frequent as the last"])
@pytest.mark.parametrize(("alphabet", "percent"), [(16, 0.05), (256, 0.1), (1000, 0.2)])
def test_it_takes_hardly_more_than_the_entropy(kind: str, alphabet: int, percent: float) -> None:
    symbols = drawn(kind, 200_003, alphabet)
    counts = count_symbols(symbols, alphabet)
    shares = counts[counts > 0] / len(symbols)
    least = -len(symbols) * float((shares * np.log2(shares)).sum())
    assert 8 * len(rans.encode(symbols, scaled(counts))) <= (1 + percent / 100) * least + 8 * 2 * 40
