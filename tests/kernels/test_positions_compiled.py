"""Positions are coded and decoded, or refused, to the same bits by compiled loops and plain twins."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from thinwire.kernels import gaps, positions
from thinwire.kernels.bits import packed_bytes

from ..helpers import same_bits
from .twins import THREADS, on_threads, outcome, plainly

SIZES = (1, 7, 64, 1000, 30_011)
every_number_of_threads = pytest.mark.parametrize("threads", THREADS)
DRAWN = {
    "none": lambda size: torch.zeros(size, dtype=torch.bool),
    "all": lambda size: torch.ones(size, dtype=torch.bool),
    "the last": lambda size: torch.arange(size) == size - 1,
    "a run": lambda size: (torch.arange(size) >= size // 3) & (torch.arange(size) < size // 2),
    "half": lambda size: chance(size) < 0.5,
    "a tenth": lambda size: chance(size) < 0.1,
    "few": lambda size: chance(size) < 0.002,
    "clustered": lambda size: chance(size) < 0.3 * (torch.arange(size) % 1000 < 100),
}


def chance(size: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(size))


@every_number_of_threads
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
def test_loops_and_twins_say_the_same(drawn, size: int, threads: int) -> None:
    there = drawn(size).nonzero().squeeze(1)
    told = plainly(lambda: (gaps.encode(there, size), positions.encode(there, size)))
    with on_threads(threads):
        assert same_bits((gaps.encode(there, size), positions.encode(there, size)), told)
        assert same_bits(gaps.decode(*told[0], size), there)
        assert same_bits(positions.decode(told[1], there.numel(), size), there)
    assert same_bits(plainly(lambda: gaps.decode(*told[0], size)), there)
    assert same_bits(plainly(lambda: positions.decode(told[1], there.numel(), size)), there)


def test_positions_that_do_not_lie_in_a_row_are_coded_alike() -> None:
    there = torch.arange(0, 2000, 7)
    apart = torch.stack([there, there], 1)[:, 0]
    assert not apart.is_contiguous()
    assert same_bits(gaps.encode(apart, 2000), gaps.encode(there, 2000))
    assert same_bits(positions.encode(apart, 2000), positions.encode(there, 2000))


@every_number_of_threads
@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 300))
def test_any_bytes_are_refused_by_both_or_decoded_alike(threads: int, rests: bytes, lows: bytes, size: int) -> None:
    said = as_bytes(rests), as_bytes(lows)
    with on_threads(threads):
        decoded = outcome(lambda: gaps.decode(*said, size))
    assert same_bits(decoded, plainly(lambda: outcome(lambda: gaps.decode(*said, size))))


@every_number_of_threads
@given(st.integers(1, 200), st.integers(0, 3000), st.lists(st.integers(0, 2**20), max_size=4), st.data())
def test_damaged_bytes_are_refused_by_both_or_decoded_alike(
    threads: int, count: int, size: int, flips: list[int], data: st.DataObject
) -> None:
    # Close to a true coding, where any bytes hardly ever come.
    some = data.draw(st.sets(st.integers(0, max(0, size - 1)), max_size=min(count, size)))
    there = torch.tensor(sorted(some), dtype=torch.int64)
    rests, lows = gaps.encode(there, size)
    coded = positions.encode(there, size)
    for part, flip in zip((rests, lows, coded, lows), flips, strict=False):
        if part.numel():
            part[flip // 8 % part.numel()] ^= 1 << flip % 8
    with on_threads(threads):
        by_gaps = outcome(lambda: gaps.decode(rests, lows, size))
        by_counts = outcome(lambda: positions.decode(coded, there.numel(), size))
    assert same_bits(by_gaps, plainly(lambda: outcome(lambda: gaps.decode(rests, lows, size))))
    assert same_bits(by_counts, plainly(lambda: outcome(lambda: positions.decode(coded, there.numel(), size))))


def test_a_gap_that_overflows_is_refused() -> None:
    # 2**23 zeros and a one: shifted by 40 bits, they would be a negative gap.
    size, bits = 2**21, 2**23 + 1
    rests, rows = torch.zeros(-(-bits // 8), dtype=torch.uint8), -(-bits // 8)
    rests[(bits - 1) % rows] = 1 << (bits - 1) // rows
    for low in (31, 33, 40):
        lows = torch.zeros(1 + packed_bytes(1, low), dtype=torch.uint8)
        lows[0] = low
        refused = {outcome(partial(gaps.decode, rests, lows, size))}
        refused.add(plainly(partial(outcome, partial(gaps.decode, rests, lows, size))))
        assert refused == {f"positions are not within a vector of {size}"}


def as_bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
