import numpy as np
import pytest
import torch

from thinwire import (
    BinnedSign,
    Cast,
    Chain,
    Entropy,
    GenNorm,
    Histogram,
    Huffman,
    Laplace,
    MiniFloat,
    Normal,
    PayloadError,
    Quantize,
    Rans,
    Sign,
    Ternary,
    TopK,
)
from thinwire.extend import Codec
from thinwire.wire import payload

from ..entropy.sample_symbols import entries
from ..helpers import random, same_bits


def size(x: torch.Tensor, codec: Codec) -> int:
    return payload.encode(x, codec, 3).numel()


def test_repetitive_data_is_compressed_and_noise_is_stored() -> None:
    assert size(torch.ones(10_000), Entropy()) < 200
    noise = torch.randint(0, 256, (40_000,), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    assert size(noise.view(torch.float32), Entropy()) <= 40_000 + 40


@pytest.mark.parametrize("entries", [0, 1, 2, 15, 100, 5000])
@pytest.mark.parametrize("first", [Quantize(8), Quantize(3), Sign(), Ternary(), TopK(0.1), MiniFloat()], ids=repr)
def test_no_payload_grows_by_more_than_a_header(first: Codec, entries: int) -> None:
    x = random(entries)
    parts = first.encode((x,), 3)
    header = 12 + sum(2 + 1 + 12 for _ in parts)  # of a payload of variable layout
    stored = sum(part.nbytes + 1 for part in parts if not part.is_meta)
    assert size(x, Chain(first, Entropy())) <= stored + header


def test_floats_of_similar_magnitude_are_compressed() -> None:
    assert size(random(10_000), Entropy()) < 0.95 * 40_000


@pytest.mark.parametrize(
    ("first", "bits"),
    [
        (Quantize(8), 7.45),
        (Quantize(4), 3.27),
        (Ternary(), 1.6),
        (MiniFloat("fp4-121", scaled=True), 3.3),
        (Chain(TopK(0.01), Cast("float16")), 0.20),
        (Chain(TopK(0.01), Quantize(8)), 0.16),
    ],
    ids=repr,
)
def test_every_kind_of_code_is_compressed(first: Codec, bits: float) -> None:
    x = random(300_000)
    assert size(x, Chain(first, Entropy())) < size(x, first)
    assert 8 * size(x, Chain(first, Entropy())) / x.numel() < bits


def test_equal_signs_take_almost_no_bytes() -> None:
    assert size(random(100_000).abs(), Chain(Sign(), Entropy())) < 200


def test_16_bit_elements_are_single_symbols_where_that_is_shorter() -> None:
    # Both bytes of an element change together: as separate symbols they take two bits, as one symbol one.
    x = torch.zeros(200_000)
    x[::500] = torch.where(torch.rand(400, generator=torch.Generator().manual_seed(0)) < 0.5, 1.0, -1.0)
    marks = BinnedSign(500)
    (codes, *_) = marks.encode((x,), 0)
    assert codes.dtype == torch.int16
    coded, *_ = Entropy().encode((codes,), 0)
    assert same_bits(Entropy().decode(Entropy().encode((codes,), 0), 0)[0], codes)
    assert coded.numel() < 400 / 8 + 60


@pytest.mark.parametrize(
    ("shape", "deviation", "expected"),
    [
        (0.5, 1e-3, (5.760, 6.154, 5.876)),
        (0.5, 1e-4, (4.012, 4.449, 4.147)),
        (0.7, 1e-3, (5.749, 5.910, 5.800)),
        (1.0, 1e-3, (5.649, 5.708, 5.649)),
        (2.0, 1e-3, (5.445, 5.446, 5.480)),
    ],
)
def test_known_distributions_take_the_expected_bits(
    shape: float, deviation: float, expected: tuple[float, ...]
) -> None:
    """Bits per entry of 8-bit floats, signs included, of 36,864 entries, computed by other means."""
    sample = torch.from_numpy(entries(shape, 36_864, seed=3))
    x = (sample * (deviation / sample.std())).float()
    for model, bits in zip((GenNorm, Normal, Laplace), expected, strict=True):
        codec = Chain(MiniFloat("fp8-152"), Entropy(model(grid="fp8-152"), Huffman()))
        assert 8 * size(x, codec) / x.numel() == pytest.approx(bits, rel=0.01)


@pytest.mark.parametrize("coder", [Huffman(), Rans()], ids=repr)
@pytest.mark.parametrize("model", [Histogram(), GenNorm(), GenNorm("moments", sample=1000), Laplace()], ids=repr)
def test_every_model_and_coder_is_lossless(model: Histogram, coder: Huffman) -> None:
    for first in (Quantize(8), Quantize(5), Sign(), Ternary(), TopK(0.1), MiniFloat("fp4-121"), BinnedSign(100)):
        x = random(20_000)
        plain = payload.decode(payload.encode(x, first, 3), first, 3, x)
        codec = Chain(first, Entropy(model, coder))
        assert same_bits(payload.decode(payload.encode(x, codec, 3), codec, 3, x), plain)


def test_other_flags_and_lengths_raise() -> None:
    part, like = Entropy().encode((torch.arange(500).remainder(7).to(torch.uint8),), 3)
    for damaged in (
        part[:-1],
        torch.cat([part, part[-1:]]),
        torch.cat([torch.tensor([1], dtype=torch.uint8), part[1:]]),
    ):
        with pytest.raises(PayloadError):
            Entropy().decode((damaged, like), 3)
    with pytest.raises(PayloadError, match="needs a flag and the outline"):
        Entropy().decode((part,), 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Entropy("gennorm"), "takes a model such as Histogram.. or GenNorm.., not 'gennorm'"),
        (lambda: Entropy(coder=GenNorm()), "takes a coder, Huffman.. or Rans.., not GenNorm"),
    ],
)
def test_an_invalid_model_or_coder_is_an_error(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


def test_symbols_in_chunks_round_trip_on_any_number_of_threads() -> None:
    x = torch.from_numpy(entries(0.7, 700_000)).float()
    codec = Chain(Quantize(8), Entropy())
    before = torch.get_num_threads()
    payloads = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            payloads.append(payload.encode(x, codec, 0))
            assert np.array_equal(payload.decode(payloads[-1], codec, 0, x), payload.decode(payloads[0], codec, 0, x))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(other, payloads[0]) for other in payloads)
