import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.kernels.bits import pack, packed_bytes, unpack

SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000)
WIDTHS = (*range(1, 17), 20, 24, 31, 32, 33, 40, 48)


def codes(size: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 2**width, (size,), generator=generator)
    if size > 1:  # both ends of the range
        values[0], values[-1] = 0, 2**width - 1
    return values.to(torch.uint8) if width <= 8 else values


@pytest.mark.parametrize("width", WIDTHS)
def test_pack_and_unpack_round_trip(width: int) -> None:
    for size in SIZES:
        values = codes(size, width)
        packed = pack(values, width)
        assert packed.dtype == torch.uint8
        assert packed.numel() == packed_bytes(size, width)
        assert torch.equal(unpack(packed, size, width).long(), values.long())


@pytest.mark.parametrize("width", WIDTHS)
def test_packed_size_is_the_width_plus_padding(width: int) -> None:
    for size in SIZES:
        bits = size * width
        # Every field of a width is padded to full bytes: at most one byte for each of 8, 4, 2 and 1 bits.
        fields = width // 8 + (width % 8).bit_count()
        assert bits <= 8 * packed_bytes(size, width) <= bits + 7 * fields


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_widths_that_divide_a_byte_waste_less_than_a_byte(width: int) -> None:
    for size in SIZES:
        assert packed_bytes(size, width) == -(-size * width // 8)


def test_width_zero_packs_to_no_bytes() -> None:
    assert packed_bytes(9, 0) == 0
    assert pack(torch.zeros(9, dtype=torch.int64), 0).numel() == 0
    assert torch.equal(unpack(torch.empty(0, dtype=torch.uint8), 9, 0), torch.zeros(9, dtype=torch.uint8))


@pytest.mark.parametrize("width", range(1, 9))
def test_wide_and_narrow_integers_are_packed_alike(width: int) -> None:
    values = codes(77, width)
    assert torch.equal(pack(values, width), pack(values.long(), width))


@pytest.mark.parametrize("width", range(1, 9))
def test_codes_of_up_to_eight_bits_unpack_as_uint8(width: int) -> None:
    # Eight bytes per entry would dominate memory use.
    assert unpack(pack(codes(9, width), width), 9, width).dtype == torch.uint8


@pytest.mark.parametrize("width", WIDTHS)
def test_inputs_are_not_modified(width: int) -> None:
    values = codes(65, width)
    before = values.clone()
    packed = pack(values, width)
    kept = packed.clone()
    unpack(packed, 65, width)
    assert torch.equal(values, before)
    assert torch.equal(packed, kept)


@given(st.integers(1, 12).flatmap(lambda w: st.tuples(st.just(w), st.lists(st.integers(0, 2**w - 1), max_size=40))))
def test_any_codes_round_trip(sample: tuple[int, list[int]]) -> None:
    width, values = sample
    given_codes = torch.tensor(values, dtype=torch.int64)
    assert unpack(pack(given_codes, width), len(values), width).tolist() == values


@given(st.integers(1, 8), st.integers(0, 40), st.data())
def test_any_bytes_unpack_to_codes_in_range(width: int, count: int, data: st.DataObject) -> None:
    size = packed_bytes(count, width)
    raw = bytearray(data.draw(st.binary(min_size=size, max_size=size)))
    packed = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
    unpacked = unpack(packed, count, width)
    assert unpacked.shape == (count,)
    assert all(0 <= code < 2**width for code in unpacked.tolist())
