from math import comb, log2

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from thinwire import PayloadError
from thinwire.kernels.positions import coded_bytes, decode, encode

COUNTS = [(0, 0), (0, 5), (1, 1), (1, 2), (1, 1000), (7, 7), (7, 8), (8, 9), (9, 64), (50, 100), (99, 100)]
COUNTS += [(100, 100), (10, 1000), (1, 2**20), (1000, 100_000), (30_000, 100_000), (99_999, 100_000)]


def sample_positions(count: int, size: int, seed: int = 0) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))[:count].sort().values


def as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def check(positions: Tensor, count: int, size: int) -> None:
    values = positions.tolist()
    assert len(values) == count
    assert values == sorted(set(values))
    assert not values or (values[0] >= 0 and values[-1] < size)


@pytest.mark.parametrize(("count", "size"), COUNTS)
def test_positions_round_trip(count: int, size: int) -> None:
    first, last = torch.arange(count), torch.arange(size - count, size)
    for positions in (sample_positions(count, size), first, last):
        coded = encode(positions, size)
        assert coded.dtype == torch.uint8
        assert coded.numel() == coded_bytes(count, size)
        assert torch.equal(decode(coded, count, size), positions)


def padding(count: int, size: int) -> int:
    """Bits of padding: up to one byte for each field of the low bits, and one for the bitmap."""
    return 8 * (5 + int(log2(size / count)) // 8)


@pytest.mark.parametrize(("count", "size"), [(k, n) for k, n in COUNTS if k])
def test_a_position_takes_at_most_2_bits_more_than_log2_of_the_ratio(count: int, size: int) -> None:
    assert 8 * coded_bytes(count, size) <= count * (2 + log2(size / count)) + padding(count, size)


@pytest.mark.parametrize(("count", "size"), [(100, 1000), (1000, 10_000), (1000, 100_000), (300, 100_000)])
def test_few_positions_take_about_half_a_bit_each_more_than_the_entropy(count: int, size: int) -> None:
    entropy = log2(comb(size, count))
    assert entropy <= 8 * coded_bytes(count, size) <= entropy + 0.6 * count + padding(count, size)


@pytest.mark.parametrize("size", [1, 8, 100, 1000])
def test_positions_take_at_most_a_bitmap_and_none_or_all_take_no_bytes(size: int) -> None:
    assert coded_bytes(0, size) == coded_bytes(size, size) == 0
    assert max(coded_bytes(count, size) for count in range(size + 1)) <= -(-size // 8)


@pytest.mark.parametrize("wrong", [-1, 1])
@pytest.mark.parametrize(("count", "size"), COUNTS)
def test_a_wrong_length_raises(count: int, size: int, wrong: int) -> None:
    nbytes = coded_bytes(count, size) + wrong
    if nbytes >= 0:
        with pytest.raises(PayloadError, match="cannot code"):
            decode(torch.zeros(nbytes, dtype=torch.uint8), count, size)


def test_more_positions_than_entries_raise() -> None:
    with pytest.raises(PayloadError):
        decode(torch.full((coded_bytes(9, 8),), 255, dtype=torch.uint8), 9, 8)


def test_a_dtype_other_than_uint8_raises() -> None:
    with pytest.raises(PayloadError):
        decode(torch.zeros(coded_bytes(3, 9), dtype=torch.int16), 3, 9)


@given(st.integers(0, 40), st.integers(0, 300), st.data())
def test_any_positions_round_trip(count: int, size: int, data: st.DataObject) -> None:
    count = min(count, size)
    chosen = data.draw(st.sets(st.integers(0, size - 1), min_size=count, max_size=count)) if count else set()
    positions = torch.tensor(sorted(chosen), dtype=torch.int64)
    assert torch.equal(decode(encode(positions, size), count, size), positions)


@given(st.integers(0, 12), st.integers(0, 60), st.data())
def test_random_bytes_raise_or_decode_to_increasing_positions(count: int, size: int, data: st.DataObject) -> None:
    nbytes = coded_bytes(count, size)
    raw = data.draw(st.binary(min_size=nbytes, max_size=nbytes))
    try:
        positions = decode(as_tensor(raw), count, size)
    except PayloadError:
        return
    check(positions, count, size)


@given(st.integers(1, 30), st.integers(1, 200), st.lists(st.integers(0, 10_000), min_size=1, max_size=4))
def test_damaged_bytes_raise_or_decode_to_increasing_positions(count: int, size: int, flips: list[int]) -> None:
    # Random bytes hardly ever pass the first check; most of these do.
    count = min(count, size)
    coded = encode(sample_positions(count, size, seed=count), size)
    for flip in flips if coded.numel() else []:
        at = flip % (8 * coded.numel())
        coded[at // 8] ^= 1 << (at % 8)
    try:
        positions = decode(coded, count, size)
    except PayloadError:
        return
    check(positions, count, size)


def test_damage_can_pass_the_check_of_the_bitmap_count() -> None:
    """The check of the order is needed: two equal positions set as many bits as two different ones."""
    coded = encode(torch.tensor([4, 5]), 64)
    refused = 0
    for at in range(8 * coded.numel()):
        damaged = coded.clone()
        damaged[at // 8] ^= 1 << (at % 8)
        try:
            check(decode(damaged, 2, 64), 2, 64)
        except PayloadError as error:
            refused += "not increasing" in str(error)
    assert refused
