"""Huffman coding as docs/wire-format.md describes it, and its length against the entropy."""

import numpy as np
import pytest

from thinwire import PayloadError
from thinwire.kernels import huffman
from thinwire.kernels.frequencies import count_symbols, lengths, scaled

from .symbol_rows import sample_symbols


def test_bytes_are_as_documented() -> None:
    # b has 0, a 10 and c 11, by length and then by symbol; the first bit is the lowest.
    frequencies = np.array([4096, 8192, 4096])
    assert lengths(frequencies, 12).tolist() == [2, 1, 2]
    data_bytes = huffman.encode(np.array([0, 1, 2, 1, 1, 2, 0], np.uint8), frequencies)  # 10 0 11 0 0 1, and 1 10
    assert data_bytes.tolist() == [2, 0, 0b10011001, 0b011]


def test_a_chunk_is_split_into_quarters_rounded_up() -> None:
    frequencies = np.array([8192, 8192])
    sizes = huffman.encode(np.zeros(65_536 + 1025, np.uint8), frequencies)[: 2 * 8].view("<u2")
    assert sizes.tolist() == [2048] * 4 + [33, 33, 33, 32]  # 257, 257, 257 and 254 symbols
    sizes = huffman.encode(np.zeros(65_536 + 1023, np.uint8), frequencies)[: 2 * 5].view("<u2")
    assert sizes.tolist() == [2048] * 4 + [128]


def test_the_longest_stream_has_its_length_in_two_bytes() -> None:
    # The rarest of many symbols have codes of 16 bits; a stream of nothing else takes 2**15 bytes.
    frequencies = scaled(2 ** np.minimum(39, np.arange(1000)))
    rarest = int(lengths(frequencies, 16).argmax())
    assert lengths(frequencies, 16)[rarest] == 16
    symbols = np.full(65_536, rarest, np.uint16)
    data = huffman.encode(symbols, frequencies)
    assert data[:8].view("<u2").tolist() == [2**15] * 4
    assert np.array_equal(huffman.decode(data, 65_536, frequencies, np.uint16)[0], symbols)


def test_padding_of_the_last_byte_must_be_zero() -> None:
    frequencies = np.array([8192, 8192])
    assert huffman.encode(np.ones(3, np.uint8), frequencies).tolist() == [1, 0, 0b111]
    for other in (0b1111, 0b10000111):
        with pytest.raises(PayloadError):
            huffman.decode(np.array([1, 0, other], np.uint8), 3, frequencies, np.uint8)


def test_impossible_lengths_raise_before_memory_is_allocated() -> None:
    frequencies = np.array([8192, 8192])
    with pytest.raises(PayloadError, match="too short for the lengths"):
        huffman.decode(np.zeros(100, np.uint8), 2**60, frequencies, np.uint8)
    with pytest.raises(PayloadError, match="cannot have the declared lengths"):
        huffman.decode(np.zeros(2**13, np.uint8), 2**26, frequencies, np.uint8)


@pytest.mark.parametrize("kind", ["skewed", "uniform"])
@pytest.mark.parametrize(("alphabet", "percent"), [(16, 3.0), (256, 1.0), (1000, 1.0)])
def test_encoded_size_is_close_to_the_entropy(kind: str, alphabet: int, percent: float) -> None:
    symbols = sample_symbols(kind, 200_003, alphabet)
    counts = count_symbols(symbols, alphabet)
    shares = counts[counts > 0] / len(symbols)
    entropy = -len(symbols) * float((shares * np.log2(shares)).sum())
    assert 8 * len(huffman.encode(symbols, scaled(counts))) <= (1 + percent / 100) * entropy + 8 * 40
