import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire import PayloadError
from thinwire.kernels import gaps


@given(st.data(), st.integers(0, 3000))
def test_positions_round_trip(data, size):
    some = data.draw(st.sets(st.integers(0, size - 1), max_size=200)) if size else set()
    positions = torch.tensor(sorted(some), dtype=torch.int64)
    assert torch.equal(gaps.decode(*gaps.encode(positions, size), size), positions)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_all_and_no_positions_round_trip(size):
    for positions in (torch.arange(size), torch.arange(0)):
        assert torch.equal(gaps.decode(*gaps.encode(positions, size), size), positions)


@pytest.mark.parametrize("density", [0.1, 0.01, 0.001])
def test_random_positions_take_at_most_3_percent_more_than_the_entropy(density):
    size = 1_000_000
    sampled = torch.rand(size, generator=torch.Generator().manual_seed(1)) < density
    positions = sampled.nonzero().squeeze(1)
    p = positions.numel() / size
    entropy = -size * (p * math.log2(p) + (1 - p) * math.log2(1 - p))
    assert 8 * sum(part.numel() for part in gaps.encode(positions, size)) <= 1.03 * entropy


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 300))
def test_any_bytes_raise_or_decode_to_increasing_positions_in_range(rests, lows, size):
    parts = [torch.tensor(list(data_bytes), dtype=torch.uint8) for data_bytes in (rests, lows)]
    try:
        positions = gaps.decode(*parts, size)
    except PayloadError:
        return
    assert positions.numel() <= size
    assert bool((positions.diff() > 0).all())
    assert not positions.numel() or (int(positions[0]) >= 0 and int(positions[-1]) < size)
