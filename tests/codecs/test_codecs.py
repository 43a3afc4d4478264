"""Properties of individual codecs, beyond the contract of all."""

import math

import pytest
import torch
from torch import Tensor

from thinwire import (
    BinnedSign,
    Cast,
    Chain,
    Entropy,
    Identity,
    Nonzero,
    PayloadError,
    Quantize,
    RandomK,
    Sign,
    SparseSign,
    Ternary,
    TopK,
)
from thinwire.extend import Codec
from thinwire.wire import payload

from ..helpers import random, same_bits


def round_trip(codec: Codec, x: Tensor, seed: int = 3) -> Tensor:
    return payload.decode(payload.encode(x, codec, seed), codec, seed, x)


# --- Cast


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_cast_clamps_finite_entries_to_finite_numbers(narrow: str, dtype: torch.dtype) -> None:
    x = torch.tensor([1e5, -1e5, torch.finfo(dtype).max, torch.finfo(dtype).min, 1e30], dtype=torch.float64)
    x = x.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)
    signal, *_ = Cast(narrow).encode((x,), 0)
    assert signal.dtype == getattr(torch, narrow)
    assert signal.isfinite().all()
    assert round_trip(Cast(narrow), x).isfinite().all()


@pytest.mark.parametrize(("narrow", "digits"), [("float16", 11), ("bfloat16", 8)])
def test_cast_rounds_to_the_nearest(narrow: str, digits: int) -> None:
    x = random(1000)
    error = (round_trip(Cast(narrow), x) - x).abs() / x.abs()
    assert error[x.abs() > 1e-3].max() <= 2.0**-digits


# --- RandomK


def test_random_k_keeps_its_ratio_and_sends_no_positions() -> None:
    x = random(1000)
    y = round_trip(RandomK(0.05), x)
    assert y.count_nonzero() == 50
    assert torch.equal(y[y != 0], x[y != 0])
    assert payload.encode(x, RandomK(0.05), 3).numel() == 4 * 50


def test_random_k_keeps_every_entry_equally_often() -> None:
    samples, size, ratio = 2000, 37, 0.3
    count = torch.zeros(size)
    for seed in range(samples):
        count += round_trip(RandomK(ratio), torch.ones(size), seed)
    # 11 of 37 are kept. The bound is six standard deviations of the expected count.
    expected = samples * 11 / size
    assert (count - expected).abs().max() < 6 * math.sqrt(expected * (1 - 11 / size))


def test_random_k_keeps_the_same_entries_for_the_same_seed() -> None:
    first, second, other = (
        round_trip(RandomK(0.2), x, seed) != 0
        for x, seed in ((random(99), 1), (random(99, seed=5), 1), (random(99), 2))
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


# --- TopK


@pytest.mark.parametrize(("ratio", "size", "count"), [(0.1, 100, 10), (0.001, 100, 1), (0.25, 2, 1), (1.0, 7, 7)])
def test_top_k_keeps_the_largest_and_at_least_one(ratio: float, size: int, count: int) -> None:
    x = random(size)
    y = round_trip(TopK(ratio), x)
    assert y.count_nonzero() == count
    assert torch.equal(y[y != 0], x[y != 0])
    assert sorted(y[y != 0].abs().tolist()) == sorted(x.abs().tolist())[-count:]


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1, math.nan])
@pytest.mark.parametrize("codec", [TopK, RandomK])
def test_a_ratio_outside_0_to_1_is_an_error(codec: type[TopK] | type[RandomK], ratio: float) -> None:
    with pytest.raises(ValueError, match=f"{codec.__name__} keeps a ratio between 0 and 1.*not {ratio}"):
        codec(ratio)


# --- Nonzero


def test_nonzero_sends_nonzero_entries_only() -> None:
    x = torch.zeros(10_000)
    assert payload.encode(x, Nonzero(), 3).numel() < 40
    x[[5, 77, 9999]] = random(3)
    assert payload.encode(x, Nonzero(), 3).numel() < 60


# --- Quantize


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("block", [1, 16, 512])
def test_quantize_error_is_at_most_half_a_step_of_the_block(bits: int, block: int) -> None:
    x = random(1000)
    x[:500] *= 100
    y = round_trip(Quantize(bits, block=block), x)
    for part, decoded in zip(x.split(block), y.split(block), strict=True):
        step = part.abs().max() / (2 ** (bits - 1) - 1)
        assert (decoded - part).abs().max() <= step / 2 * (1 + 1e-4)


@pytest.mark.parametrize("bits", range(2, 9))
def test_quantize_sends_its_bits_and_one_scale_per_block(bits: int) -> None:
    assert payload.encoded_bytes(Quantize(bits), torch.zeros(8 * 512)) == bits * 512 + 8 * 4


@pytest.mark.parametrize("bits", [2, 8])
def test_stochastic_rounding_is_unbiased(bits: int) -> None:
    codec, samples = Quantize(bits, stochastic=True), 2000
    x = random(60)
    step = float(x.abs().max()) / (2 ** (bits - 1) - 1)
    mean = torch.stack([round_trip(codec, x, seed) for seed in range(samples)]).double().mean(0)
    # Hoeffding: a sample is off by less than a step, so the mean of n is off by more than t steps with probability at
    # most 2 exp(-2 n t^2); this t gives one in a billion for all 60 entries together.
    t = math.sqrt(math.log(2 * 60 * 1e9) / (2 * samples))
    assert (mean - x).abs().max() <= t * step * (1 + 1e-6)
    assert t < 0.1, "the bound is tight enough to exclude deterministic rounding"
    assert (round_trip(Quantize(bits), x) - x).abs().max() > 2 * t * step


def test_stochastic_rounding_error_is_at_most_a_step() -> None:
    x = random(1000)
    codec = Quantize(4, stochastic=True, block=1000)
    for seed in range(20):
        assert (round_trip(codec, x, seed) - x).abs().max() <= x.abs().max() / 7 * (1 + 1e-4)


def noise(codec: Codec, x: Tensor, seed: int) -> Tensor:
    """Which entries were rounded up."""
    return round_trip(codec, x, seed) > x


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda x: random(1000, seed=8), id="different"),
        pytest.param(lambda x: x * (1 + 1e-3), id="almost the same"),
        pytest.param(lambda x: x.roll(1), id="the same entries elsewhere"),
        pytest.param(lambda x: -x, id="the opposite"),
    ],
)
def test_ranks_that_share_a_seed_round_independently(other: object) -> None:
    # Otherwise their errors would add up instead of averaging out.
    codec = Quantize(8, stochastic=True, block=1000)
    x = random(1000)
    y = other(x)  # type: ignore[operator]
    both = torch.stack([_fraction_noise(codec, v) for v in (x, y)])
    correlation = torch.corrcoef(both)[0, 1]
    # Six standard deviations of independent samples.
    assert correlation.abs() < 6 / math.sqrt(1000)


def _fraction_noise(codec: Quantize, x: Tensor) -> Tensor:
    """Whether each entry was rounded up, minus the probability of that."""
    step = x.abs().max() / codec.levels
    fraction = (x / step).double() - (x / step).double().floor()
    return noise(codec, x, 3).double() - fraction


def test_another_seed_rounds_differently() -> None:
    codec, x = Quantize(8, stochastic=True), random(1000)
    # Two independent samples differ with probability 2 f (1 - f); the mean over all fractions f is a third.
    assert 0.25 < (noise(codec, x, 1) != noise(codec, x, 2)).double().mean() < 0.42


@pytest.mark.parametrize("bits", [1, 9, 4.0, "8"])
def test_quantize_with_other_than_2_to_8_bits_is_an_error(bits: object) -> None:
    with pytest.raises(ValueError, match="2 to 8 bits"):
        Quantize(bits)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [0, -1, 1.5])
def test_quantize_with_an_invalid_block_is_an_error(block: object) -> None:
    with pytest.raises(ValueError, match="blocks of 1 entry or more"):
        Quantize(8, block=block)  # type: ignore[arg-type]


# --- Sign and Ternary


def test_sign_is_one_bit_and_the_mean_magnitude() -> None:
    x = torch.tensor([1.0, -2.0, 3.0, -6.0])
    assert round_trip(Sign(), x).tolist() == [3.0, -3.0, 3.0, -3.0]
    assert payload.encoded_bytes(Sign(), torch.zeros(800)) == 100 + 4


def test_ternary_keeps_the_larger_entries_with_their_mean_magnitude() -> None:
    x = torch.tensor([0.1, -2.0, 4.0, 0.0])  # 0.7 of the mean magnitude is 1.0675
    assert round_trip(Ternary(), x).tolist() == [0.0, -3.0, 3.0, 0.0]
    assert payload.encoded_bytes(Ternary(), torch.zeros(800)) == 200 + 4


def test_the_default_threshold_of_ternary_is_near_the_best_for_normal_entries() -> None:
    x = random(20_000)
    errors = {t: float((round_trip(Ternary(t), x) - x).square().sum()) for t in (0.3, 0.5, 0.7, 0.9, 1.1)}
    default = float((round_trip(Ternary(), x) - x).square().sum())
    assert default <= min(errors.values()) * 1.02


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_ternary_with_an_invalid_threshold_is_an_error(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold of 0 or more"):
        Ternary(threshold)


# --- Chain


def test_a_chain_is_linear_if_all_codecs_are_and_variable_if_any_is() -> None:
    assert Chain(RandomK(0.5), Cast("float16")).linear
    assert not Chain(RandomK(0.5), Sign()).linear
    assert Chain(TopK(0.5), Entropy()).variable
    assert not Chain(TopK(0.5), Sign()).variable


def test_a_chain_of_one_codec_gives_the_payload_of_the_codec() -> None:
    x = random(50)
    for codec in (TopK(0.1), Quantize(4), Entropy()):
        assert same_bits(payload.encode(x, Chain(codec), 3), payload.encode(x, codec, 3))


def test_a_chain_applies_its_codecs_in_order() -> None:
    x = random(100)
    kept = round_trip(TopK(0.1), x)
    y = round_trip(Chain(TopK(0.1), Sign()), x)
    assert torch.equal(y != 0, kept != 0)
    assert y[y != 0].abs().unique().tolist() == pytest.approx([float(kept[kept != 0].abs().mean())])


@pytest.mark.parametrize("second", [TopK(0.1), Cast("float16"), Quantize(8), Nonzero(), RandomK(0.5)], ids=repr)
@pytest.mark.parametrize("first", [Quantize(8), Sign(), Ternary(), Entropy(), Chain(TopK(0.1), Sign())], ids=repr)
def test_chaining_a_numeric_codec_after_codes_is_an_error(first: Codec, second: Codec) -> None:
    with pytest.raises(ValueError, match="needs numbers and cannot follow"):
        Chain(first, second)


@pytest.mark.parametrize("wrong", [(), ("TopK(0.1)",), (TopK(0.1), None)])
def test_a_chain_of_other_than_codecs_is_an_error(wrong: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="Chain"):
        Chain(*wrong)  # type: ignore[arg-type]


def test_identity_sends_the_bytes_unchanged() -> None:
    x = random(3, 4)
    assert same_bits(payload.encode(x, Identity(), 3).view(torch.float32).view(3, 4), x)


@pytest.mark.parametrize("codec", [SparseSign(), BinnedSign(50)], ids=repr)
def test_a_magnitude_of_wrong_shape_or_type_raises(codec: Codec) -> None:
    x = random(1000)
    *others, size, like = codec.encode((x,), 0)
    for wrong in (size.expand(1000, 1), size.double(), size.view(1)):
        with pytest.raises(PayloadError, match="cannot be the mean magnitude"):
            codec.decode((*others, wrong, like), 0)
