"""What each codec promises beyond what all of them do."""

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


def through(codec: Codec, x: Tensor, seed: int = 3) -> Tensor:
    return payload.decode(payload.encode(x, codec, seed), codec, seed, x)


# --- Cast


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_cast_sends_no_infinity_for_a_number(narrow: str, dtype: torch.dtype) -> None:
    x = torch.tensor([1e5, -1e5, torch.finfo(dtype).max, torch.finfo(dtype).min, 1e30], dtype=torch.float64)
    x = x.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)
    signal, *_ = Cast(narrow).encode((x,), 0)
    assert signal.dtype == getattr(torch, narrow)
    assert signal.isfinite().all()
    assert through(Cast(narrow), x).isfinite().all()


@pytest.mark.parametrize(("narrow", "digits"), [("float16", 11), ("bfloat16", 8)])
def test_cast_rounds_to_the_nearest(narrow: str, digits: int) -> None:
    x = random(1000)
    error = (through(Cast(narrow), x) - x).abs() / x.abs()
    assert error[x.abs() > 1e-3].max() <= 2.0**-digits


# --- RandomK


def test_random_k_keeps_its_share_and_sends_no_positions() -> None:
    x = random(1000)
    y = through(RandomK(0.05), x)
    assert y.count_nonzero() == 50
    assert torch.equal(y[y != 0], x[y != 0])
    assert payload.encode(x, RandomK(0.05), 3).numel() == 4 * 50


def test_random_k_keeps_every_entry_as_often_as_any_other() -> None:
    draws, size, ratio = 2000, 37, 0.3
    count = torch.zeros(size)
    for seed in range(draws):
        count += through(RandomK(ratio), torch.ones(size), seed)
    # 11 of 37 are kept. The bound is six standard deviations of a count that is right.
    expected = draws * 11 / size
    assert (count - expected).abs().max() < 6 * math.sqrt(expected * (1 - 11 / size))


def test_random_k_is_the_same_for_all_who_share_a_seed() -> None:
    first, second, other = (
        through(RandomK(0.2), x, seed) != 0 for x, seed in ((random(99), 1), (random(99, seed=5), 1), (random(99), 2))
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


# --- TopK


@pytest.mark.parametrize(("ratio", "size", "count"), [(0.1, 100, 10), (0.001, 100, 1), (0.25, 2, 1), (1.0, 7, 7)])
def test_top_k_keeps_the_largest_and_at_least_one(ratio: float, size: int, count: int) -> None:
    x = random(size)
    y = through(TopK(ratio), x)
    assert y.count_nonzero() == count
    assert torch.equal(y[y != 0], x[y != 0])
    assert sorted(y[y != 0].abs().tolist()) == sorted(x.abs().tolist())[-count:]


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1, math.nan])
@pytest.mark.parametrize("codec", [TopK, RandomK])
def test_a_ratio_is_between_0_and_1(codec: type[TopK] | type[RandomK], ratio: float) -> None:
    with pytest.raises(ValueError, match=f"{codec.__name__} keeps a ratio between 0 and 1.*not {ratio}"):
        codec(ratio)


# --- Nonzero


def test_nonzero_sends_what_is_there() -> None:
    x = torch.zeros(10_000)
    assert payload.encode(x, Nonzero(), 3).numel() < 40
    x[[5, 77, 9999]] = random(3)
    assert payload.encode(x, Nonzero(), 3).numel() < 60


# --- Quantize


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("block", [1, 16, 512])
def test_quantize_is_off_by_half_a_step_of_its_block_at_most(bits: int, block: int) -> None:
    x = random(1000)
    x[:500] *= 100
    y = through(Quantize(bits, block=block), x)
    for part, said in zip(x.split(block), y.split(block), strict=True):
        step = part.abs().max() / (2 ** (bits - 1) - 1)
        assert (said - part).abs().max() <= step / 2 * (1 + 1e-4)


@pytest.mark.parametrize("bits", range(2, 9))
def test_quantize_takes_its_bits_and_a_scale_a_block(bits: int) -> None:
    assert payload.encoded_bytes(Quantize(bits), torch.zeros(8 * 512)) == bits * 512 + 8 * 4


@pytest.mark.parametrize("bits", [2, 8])
def test_stochastic_rounding_is_right_on_average(bits: int) -> None:
    codec, draws = Quantize(bits, stochastic=True), 2000
    x = random(60)
    step = float(x.abs().max()) / (2 ** (bits - 1) - 1)
    mean = torch.stack([through(codec, x, seed) for seed in range(draws)]).double().mean(0)
    # Hoeffding: a draw is off by less than a step, so the mean of n is off by more than t steps with a chance of at
    # most 2 exp(-2 n t^2); this t leaves one in a billion for all 60 entries together.
    t = math.sqrt(math.log(2 * 60 * 1e9) / (2 * draws))
    assert (mean - x).abs().max() <= t * step * (1 + 1e-6)
    assert t < 0.1, "so loose a bound would not tell it from plain rounding"
    assert (through(Quantize(bits), x) - x).abs().max() > 2 * t * step


def test_stochastic_rounding_is_off_by_a_step_at_most() -> None:
    x = random(1000)
    codec = Quantize(4, stochastic=True, block=1000)
    for seed in range(20):
        assert (through(codec, x, seed) - x).abs().max() <= x.abs().max() / 7 * (1 + 1e-4)


def noise(codec: Codec, x: Tensor, seed: int) -> Tensor:
    """Which entries were rounded up."""
    return through(codec, x, seed) > x


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
    # If they did not, their errors would add up instead of averaging out.
    codec = Quantize(8, stochastic=True, block=1000)
    x = random(1000)
    y = other(x)  # type: ignore[operator]
    both = torch.stack([_fraction_noise(codec, v) for v in (x, y)])
    correlation = torch.corrcoef(both)[0, 1]
    # Of independent draws, six standard deviations.
    assert correlation.abs() < 6 / math.sqrt(1000)


def _fraction_noise(codec: Quantize, x: Tensor) -> Tensor:
    """What is known of the noise that rounded each entry: it was above or below a threshold, which is taken out."""
    step = x.abs().max() / codec.levels
    fraction = (x / step).double() - (x / step).double().floor()
    return noise(codec, x, 3).double() - fraction


def test_a_new_seed_rounds_anew() -> None:
    codec, x = Quantize(8, stochastic=True), random(1000)
    # Two independent draws round an entry differently with a chance of 2 f (1 - f); a third, over all fractions f.
    assert 0.25 < (noise(codec, x, 1) != noise(codec, x, 2)).double().mean() < 0.42


@pytest.mark.parametrize("bits", [1, 9, 4.0, "8"])
def test_quantize_takes_2_to_8_bits(bits: object) -> None:
    with pytest.raises(ValueError, match="2 to 8 bits"):
        Quantize(bits)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [0, -1, 1.5])
def test_quantize_takes_blocks_of_whole_entries(block: object) -> None:
    with pytest.raises(ValueError, match="blocks of 1 entry or more"):
        Quantize(8, block=block)  # type: ignore[arg-type]


# --- Sign and Ternary


def test_sign_is_one_bit_and_the_mean_magnitude() -> None:
    x = torch.tensor([1.0, -2.0, 3.0, -6.0])
    assert through(Sign(), x).tolist() == [3.0, -3.0, 3.0, -3.0]
    assert payload.encoded_bytes(Sign(), torch.zeros(800)) == 100 + 4


def test_ternary_keeps_the_larger_entries_with_their_mean_magnitude() -> None:
    x = torch.tensor([0.1, -2.0, 4.0, 0.0])  # 0.7 of the mean magnitude is 1.0675
    assert through(Ternary(), x).tolist() == [0.0, -3.0, 3.0, 0.0]
    assert payload.encoded_bytes(Ternary(), torch.zeros(800)) == 200 + 4


def test_ternary_loses_least_on_a_bell_curve_with_its_default() -> None:
    x = random(20_000)
    lost = {t: float((through(Ternary(t), x) - x).square().sum()) for t in (0.3, 0.5, 0.7, 0.9, 1.1)}
    default = float((through(Ternary(), x) - x).square().sum())
    assert default <= min(lost.values()) * 1.02


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_ternary_takes_no_negative_threshold(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold of 0 or more"):
        Ternary(threshold)


# --- Chain


def test_a_chain_is_linear_if_all_its_codecs_are_and_varies_if_any_does() -> None:
    assert Chain(RandomK(0.5), Cast("float16")).linear
    assert not Chain(RandomK(0.5), Sign()).linear
    assert Chain(TopK(0.5), Entropy()).variable
    assert not Chain(TopK(0.5), Sign()).variable


def test_a_chain_of_one_says_what_its_codec_says() -> None:
    x = random(50)
    for codec in (TopK(0.1), Quantize(4), Entropy()):
        assert same_bits(payload.encode(x, Chain(codec), 3), payload.encode(x, codec, 3))


def test_the_signal_goes_through_the_codecs_in_order() -> None:
    x = random(100)
    kept = through(TopK(0.1), x)
    y = through(Chain(TopK(0.1), Sign()), x)
    assert torch.equal(y != 0, kept != 0)
    assert y[y != 0].abs().unique().tolist() == pytest.approx([float(kept[kept != 0].abs().mean())])


@pytest.mark.parametrize("second", [TopK(0.1), Cast("float16"), Quantize(8), Nonzero(), RandomK(0.5)], ids=repr)
@pytest.mark.parametrize("first", [Quantize(8), Sign(), Ternary(), Entropy(), Chain(TopK(0.1), Sign())], ids=repr)
def test_codes_are_not_taken_for_numbers(first: Codec, second: Codec) -> None:
    with pytest.raises(ValueError, match="needs numbers and cannot follow"):
        Chain(first, second)


@pytest.mark.parametrize("wrong", [(), ("TopK(0.1)",), (TopK(0.1), None)])
def test_a_chain_takes_codecs(wrong: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="Chain"):
        Chain(*wrong)  # type: ignore[arg-type]


def test_identity_says_the_bytes_themselves() -> None:
    x = random(3, 4)
    assert same_bits(payload.encode(x, Identity(), 3).view(torch.float32).view(3, 4), x)


@pytest.mark.parametrize("codec", [SparseSign(), BinnedSign(50)], ids=repr)
def test_a_size_of_many_is_refused_before_it_is_multiplied_out(codec: Codec) -> None:
    x = random(1000)
    *others, size, like = codec.encode((x,), 0)
    for wrong in (size.expand(1000, 1), size.double(), size.view(1)):
        with pytest.raises(PayloadError, match="cannot be the one size"):
            codec.decode((*others, wrong, like), 0)
