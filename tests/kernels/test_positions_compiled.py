"""Coding of positions: compiled loops and twins agree to the bit, and raise the same errors."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from thinwire.kernels import gaps, positions
from thinwire.kernels.bits import packed_bytes

from ..helpers import same_bits
from .twins import THREADS, on_threads, result_or_error, with_twins

SIZES = (1, 7, 64, 1000, 30_011)
every_number_of_threads = pytest.mark.parametrize("threads", THREADS)
SAMPLES = {
    "none": lambda size: torch.zeros(size, dtype=torch.bool),
    "all": lambda size: torch.ones(size, dtype=torch.bool),
    "the last": lambda size: torch.arange(size) == size - 1,
    "a run": lambda size: (torch.arange(size) >= size // 3) & (torch.arange(size) < size // 2),
    "half": lambda size: uniform(size) < 0.5,
    "a tenth": lambda size: uniform(size) < 0.1,
    "few": lambda size: uniform(size) < 0.002,
    "clustered": lambda size: uniform(size) < 0.3 * (torch.arange(size) % 1000 < 100),
}


def uniform(size: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(size))


@every_number_of_threads
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_loops_and_twins_encode_to_the_same_bits(sample, size: int, threads: int) -> None:
    expected = sample(size).nonzero().squeeze(1)
    encoded = with_twins(lambda: (gaps.encode(expected, size), positions.encode(expected, size)))
    with on_threads(threads):
        assert same_bits((gaps.encode(expected, size), positions.encode(expected, size)), encoded)
        assert same_bits(gaps.decode(*encoded[0], size), expected)
        assert same_bits(positions.decode(encoded[1], expected.numel(), size), expected)
    assert same_bits(with_twins(lambda: gaps.decode(*encoded[0], size)), expected)
    assert same_bits(with_twins(lambda: positions.decode(encoded[1], expected.numel(), size)), expected)


def test_strided_positions_encode_to_the_same_bits() -> None:
    expected = torch.arange(0, 2000, 7)
    apart = torch.stack([expected, expected], 1)[:, 0]
    assert not apart.is_contiguous()
    assert same_bits(gaps.encode(apart, 2000), gaps.encode(expected, 2000))
    assert same_bits(positions.encode(apart, 2000), positions.encode(expected, 2000))


@every_number_of_threads
@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 300))
def test_any_bytes_give_the_same_positions_or_error_in_both(threads: int, rests: bytes, lows: bytes, size: int) -> None:
    parts = as_bytes(rests), as_bytes(lows)
    with on_threads(threads):
        decoded = result_or_error(lambda: gaps.decode(*parts, size))
    assert same_bits(decoded, with_twins(lambda: result_or_error(lambda: gaps.decode(*parts, size))))


@every_number_of_threads
@given(st.integers(1, 200), st.integers(0, 3000), st.lists(st.integers(0, 2**20), max_size=4), st.data())
def test_damaged_bytes_give_the_same_positions_or_error_in_both(
    threads: int, count: int, size: int, flips: list[int], data: st.DataObject
) -> None:
    # Random bytes hardly ever come close to a valid code.
    some = data.draw(st.sets(st.integers(0, max(0, size - 1)), max_size=min(count, size)))
    expected = torch.tensor(sorted(some), dtype=torch.int64)
    rests, lows = gaps.encode(expected, size)
    coded = positions.encode(expected, size)
    for part, flip in zip((rests, lows, coded, lows), flips, strict=False):
        if part.numel():
            part[flip // 8 % part.numel()] ^= 1 << flip % 8
    with on_threads(threads):
        by_gaps = result_or_error(lambda: gaps.decode(rests, lows, size))
        by_counts = result_or_error(lambda: positions.decode(coded, expected.numel(), size))
    assert same_bits(by_gaps, with_twins(lambda: result_or_error(lambda: gaps.decode(rests, lows, size))))
    assert same_bits(
        by_counts, with_twins(lambda: result_or_error(lambda: positions.decode(coded, expected.numel(), size)))
    )


def test_a_gap_that_overflows_raises() -> None:
    # 2**23 zeros and a one: shifted by 40 bits, they would be a negative gap.
    size, bits = 2**21, 2**23 + 1
    rests, rows = torch.zeros(-(-bits // 8), dtype=torch.uint8), -(-bits // 8)
    rests[(bits - 1) % rows] = 1 << (bits - 1) // rows
    for low in (31, 33, 40):
        lows = torch.zeros(1 + packed_bytes(1, low), dtype=torch.uint8)
        lows[0] = low
        refused = {result_or_error(partial(gaps.decode, rests, lows, size))}
        refused.add(with_twins(partial(result_or_error, partial(gaps.decode, rests, lows, size))))
        assert refused == {f"positions are not within a vector of {size}"}


def as_bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
