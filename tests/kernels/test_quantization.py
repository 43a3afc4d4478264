"""Quantization and dequantization: compiled loops and twins agree to the bit."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from thinwire import PayloadError, Quantize, Sign, Ternary
from thinwire.core.lazy import Lazy
from thinwire.kernels import quantization as quantize
from thinwire.kernels.bits import packed_bytes
from thinwire.kernels.quantization import noise, quantized
from thinwire.kernels.quantized_tensor import QuantizedTensor, Uniform
from thinwire.kernels.sign_bits import signs, ternary
from thinwire.wire import payload

from ..helpers import random, same_bits
from . import kernel_inputs as inputs
from .kernel_inputs import KINDS
from .twins import THREADS, on_threads, with_twins

SIZES = (0, 1, 7, 1001, 40_009)
SMALLER_SIZES = (0, 1, 7, 1001, 10_007)  # with a few blocks of the largest size, and blocks longer than LARGE
BLOCKS = (3, 512, 2**12 + 1)
KEYS = (None, 2**32 - 5)
every_number_of_threads = pytest.mark.parametrize("threads", THREADS)
every_kind = pytest.mark.parametrize("kind", [*KINDS, "not finite"])
every_width = pytest.mark.parametrize("bits", [2, 3, 4, 8])


def vector(kind: str, size: int) -> Tensor:
    if kind != "not finite":
        return inputs.vector(kind, size) if size else torch.zeros(0)
    x = random(size)
    x[::97], x[5::613], x[11::619] = torch.inf, -torch.nan, -torch.inf
    return x


@every_width
@every_kind
def test_loops_and_twins_quantize_to_the_same_bits(kind: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "LARGE", 2**12)
    for size, block, key in product(SMALLER_SIZES, BLOCKS, KEYS):
        x = vector(kind, size)
        before = x.clone()
        expected = with_twins(lambda: quantized(x, bits, block, key))  # noqa: B023
        for threads in THREADS:
            with on_threads(threads):
                assert same_bits(quantized(x, bits, block, key), expected), (size, block, key, threads)
        assert same_bits(x, before)


@every_number_of_threads
@every_kind
def test_loops_and_twins_give_the_same_sign_and_ternary_codes(kind: str, threads: int) -> None:
    for size in SIZES:
        x = vector(kind, size)
        expected = with_twins(lambda: (signs(x), *(ternary(x, t) for t in (0.0, 0.7, 3.0))))  # noqa: B023
        with on_threads(threads):
            assert same_bits((signs(x), *(ternary(x, t) for t in (0.0, 0.7, 3.0))), expected), size


@given(
    arrays.arrays("float32", st.integers(0, 300), elements=st.floats(width=32)),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 70),
    st.none() | st.integers(0, 2**32 - 1),
    st.floats(0, 100),
)
def test_loops_and_twins_agree_on_any_numbers(
    numbers: object, bits: int, block: int, key: int | None, threshold: float
) -> None:
    x = torch.from_numpy(numbers)  # type: ignore[arg-type]

    def encoded() -> tuple[object, ...]:
        return quantized(x, bits, block, key), signs(x), ternary(x, threshold)

    with on_threads(2):
        assert same_bits(encoded(), with_twins(encoded))


@every_kind
@pytest.mark.parametrize("size", SIZES)
def test_rounding_to_nearest_matches_torch(size: int, kind: str) -> None:
    x = vector(kind, size)
    for bits in (2, 4, 8):
        packed, scale = quantized(x, bits, 16, None)
        decoded = QuantizedTensor(packed, scale, Uniform(bits, 1, 1 - 2 ** (bits - 1), 16), x.to("meta")).dense()
        steps = scale.repeat_interleave(16)[:size]
        expected = (x / steps).round() * steps
        finite = steps.isfinite()
        assert same_bits(decoded[finite] + 0.0, expected[finite] + 0.0)  # + 0.0 removes negative zeros
        assert not decoded[~finite].isfinite().any()


@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_scales_are_mean_magnitudes(size: int) -> None:
    x = random(size, seed=3)
    sizes = x.double().abs()
    (_, mean), (_, of_large) = signs(x), ternary(x, 0.7)
    torch.testing.assert_close(mean.double(), sizes.mean(), rtol=1e-6, atol=0)
    large = sizes[sizes > 0.7 * sizes.mean()]
    torch.testing.assert_close(of_large.double(), large.mean(), rtol=1e-6, atol=0)


def test_the_mean_of_the_largest_floats_does_not_overflow() -> None:
    most = torch.finfo(torch.float32).max
    for loops in (lambda job: job(), with_twins):
        for size in (3, 4096, 10_000):
            x = torch.full((size,), -most)
            assert float(loops(lambda: signs(x))[1]) == float(loops(lambda: ternary(x, 0.7))[1]) == most  # noqa: B023


def test_noise_is_uniform_and_independent_between_keys() -> None:
    first, second = (noise(torch.empty(100_000), key) for key in (1, 2**31))
    assert 0 <= float(first.min()) < float(first.max()) < 1
    shares = torch.histc(first, 50, 0, 1) / first.numel()
    assert (shares - 1 / 50).abs().max() < 6 * (0.02 * 0.98 / first.numel()) ** 0.5
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 6 / first.numel() ** 0.5
    assert torch.corrcoef(torch.stack([first[1:], first[:-1]]))[0, 1].abs() < 6 / first.numel() ** 0.5


# --- Quantized tensors, without materializing them

CODECS = (Quantize(8), Quantize(4, block=7), Quantize(3), Quantize(2, block=10**6), Sign(), Ternary())
every_codec = pytest.mark.parametrize("codec", CODECS, ids=repr)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
every_type = pytest.mark.parametrize("dtype", TYPES, ids=str)
Codecs = Quantize | Sign | Ternary
CODED_SIZES = (0, 1, 7, 1001, 20_011)  # short enough that torch itself uses one thread


def decoded_lazily(codec: Codecs, size: int, dtype: torch.dtype) -> Lazy:
    x = random(size, dtype=dtype)
    lazy = payload.decode_lazy(payload.encode(x, codec, 3), codec, 3, x)
    assert isinstance(lazy, QuantizedTensor)
    return lazy


@every_number_of_threads
@every_type
@every_codec
def test_lazy_operations_give_the_bits_of_the_materialized_tensor(
    codec: Codecs, dtype: torch.dtype, threads: int
) -> None:
    wide = torch.promote_types(dtype, torch.float32)
    for size in CODED_SIZES:
        lazy, x, total = (
            decoded_lazily(codec, size, dtype),
            random(size, seed=1, dtype=dtype),
            random(size, seed=2, dtype=wide),
        )
        written = with_twins(lazy.dense)
        jobs: list[tuple[Callable[[Tensor], object], Tensor]] = [
            (lazy.copy_to, written.to(wide)),
            (lazy.add_to, total + written),
            (lambda to, lazy=lazy: lazy.add_to(to, 0.3), total + written.to(wide) * 0.3),
            (lambda to, lazy=lazy, x=x: lazy.add_rest(x, 1.0, to.clone(), to), x + (total - written)),
            (lambda to, lazy=lazy, x=x: lazy.add_rest(x, 0.9, to.clone(), to), x + 0.9 * (total - written)),
        ]
        for job, expected in jobs:
            for run in (with_twins, lambda job: job()):
                to = total.clone()
                with on_threads(threads):
                    run(lambda: job(to))  # noqa: B023
                assert same_bits(to, expected)
        assert same_bits(lazy.rest_of(total.clone()).dense(), total - written)
        assert size == 0 or float(written.abs().max()) <= lazy.bound()


@every_codec
def test_copy_to_takes_any_layout_and_type(codec: Codecs) -> None:
    lazy = decoded_lazily(codec, 60, torch.float32)
    written = lazy.dense()
    for target in (torch.empty(60, 2)[:, 0], torch.empty(60, dtype=torch.bfloat16), torch.empty(3, 20)):
        lazy.copy_to(target)
        assert same_bits(target, written.to(target.dtype).view(target.shape))


@every_codec
def test_the_bound_is_not_finite_if_an_entry_is_not(codec: Codecs) -> None:
    x = random(600)
    x[7] = torch.nan
    lazy = payload.decode_lazy(payload.encode(x, codec, 3), codec, 3, x)
    assert isinstance(lazy, Lazy)
    assert not lazy.bound() < torch.inf


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_parts_of_wrong_size_or_type_raise(size: int) -> None:
    levels, like = Uniform(4, 1, -7, 16), torch.empty(size, device="meta")
    packed, scale = torch.zeros(packed_bytes(size, 4), dtype=torch.uint8), torch.ones(-(-size // 16))
    assert torch.equal(QuantizedTensor(packed, scale, levels, like).dense(), torch.full((size,), -7.0))
    longer = torch.zeros(packed.numel() + 1, dtype=torch.uint8)
    for wrong in (longer, packed.short(), packed.view(1, -1), longer[:-2] if size else longer):
        with pytest.raises(PayloadError, match="codes of 4 bits"):
            QuantizedTensor(wrong, scale, levels, like)
    for wrong in (torch.ones(scale.numel() + 1), scale.double(), scale.long(), scale[1:] if size else longer.float()):
        with pytest.raises(PayloadError, match="scales of"):
            QuantizedTensor(packed, wrong, levels, like)


def test_codes_and_scales_share_the_buffer_that_is_sent() -> None:
    """Loops write into the buffer that is sent."""
    x = random(4096)
    for codec in (Quantize(8), Quantize(4), Quantize(2), Sign(), Ternary()):
        codes, scales, _ = codec.encode((x,), 3)
        assert codes.untyped_storage().data_ptr() == scales.untyped_storage().data_ptr()
        joined = torch.cat([codes, scales.view(-1).view(torch.uint8)])
        assert same_bits(payload.encode(x, codec, 3), joined)
