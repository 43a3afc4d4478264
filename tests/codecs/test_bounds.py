"""The error bounds of codecs hold, for tensors of all sizes and kinds.

Stochastic codecs are sampled many times. A sample mean passes if it is at most SIGMAS of its own standard errors above
the bound: by the central limit theorem, a correct codec fails once in 10^9. About two thousand means are checked, so
less than once in 10^5 runs of all of them would fail at random, if the samples did not have fixed seeds.
"""

from collections.abc import Callable
from itertools import product
from math import isfinite, sqrt

import pytest
import torch
from torch import Tensor

from thinwire import (
    AdaptiveRandom,
    BinnedSign,
    Cast,
    Chain,
    Dither,
    Entropy,
    ExponentialDither,
    Identity,
    MiniFloat,
    NaturalCompression,
    Nonzero,
    Quantize,
    RandomK,
    Round,
    Shrink,
    Sign,
    SparseSign,
    Ternary,
    TopK,
)
from thinwire.extend import Codec
from thinwire.wire import payload

from ..helpers import random

SIGMAS = 6.0
ROUNDING = 1e-5  # relative tolerance: floats have 24 bits, bounds are for real numbers
SIZES = (1, 3, 10, 1000)
SAMPLES, SAMPLES_IF_LARGE = 60, 5
MILLION = 10**6

UNBIASED: tuple[Codec, ...] = (
    Dither(1),
    Dither(4),
    Dither(100, norm="max"),
    Dither(3, norm=1),
    Dither(2, norm=3.5, block=16),
    ExponentialDither(),
    ExponentialDither(2, levels=3, norm=2),
    ExponentialDither(3, levels=4, norm=1),
    ExponentialDither(1.5, levels=30, block=50),
    NaturalCompression(),
    Quantize(4, stochastic=True),
    Quantize(2, stochastic=True, block=8),
    RandomK(0.1, unbiased=True),
    AdaptiveRandom(unbiased=True),
    AdaptiveRandom(0.1, unbiased=True),
    Chain(RandomK(0.3, unbiased=True), Dither(4)),
    Chain(AdaptiveRandom(0.3, unbiased=True), NaturalCompression(), Entropy()),
)

CONTRACTIONS: tuple[Codec, ...] = (
    Identity(),
    Nonzero(),
    Entropy(),
    Cast("float16"),
    Cast("bfloat16"),
    TopK(0.01),
    TopK(0.3),
    RandomK(0.1),
    AdaptiveRandom(),
    AdaptiveRandom(0.1),
    Sign(),
    Ternary(),
    Ternary(0.0),
    SparseSign(),
    BinnedSign(50),
    MiniFloat(),
    MiniFloat("fp4-121", scaled=True),
    Quantize(8),
    Quantize(2),
    Quantize(4, block=16),
    Round(),
    Round(1.3),
    Round(5),
    NaturalCompression(),
    ExponentialDither(2, levels=15),
    Chain(TopK(0.1), TopK(0.5)),
    Chain(TopK(0.1), Sign()),
    Chain(TopK(0.1), Quantize(4), Entropy()),
    Chain(TopK(0.1), Round()),
    Chain(TopK(0.1), NaturalCompression()),
    Chain(RandomK(0.2), Quantize(2)),
    Chain(AdaptiveRandom(0.2), Cast("bfloat16")),
    Chain(Cast("float16"), TopK(0.2)),
    Chain(Cast("bfloat16"), NaturalCompression()),
    *(Shrink(codec) for codec in UNBIASED),
    Shrink(Chain(TopK(0.1), Dither(1))),
    Shrink(Chain(TopK(0.1), ExponentialDither(2, levels=3), Entropy())),
    Shrink(Chain(TopK(0.5), RandomK(0.3, unbiased=True), ExponentialDither())),
    Shrink(Chain(RandomK(0.5, unbiased=True), Cast("float16"))),
)


def heavy(size: int) -> Tensor:
    return random(size) ** 5


def spike(size: int) -> Tensor:
    x = torch.zeros(size)
    x[size // 2] = -3.0
    return x


def spike_in_noise(size: int) -> Tensor:
    """The worst case for steps of the largest entry: all others are about half a step, for any number of steps."""
    x = random(size).sign() / torch.linspace(2, 200, size)
    x[0] = 1.0
    return x


KINDS: dict[str, Callable[[int], Tensor]] = {
    "normal": lambda size: random(size),
    "heavy": heavy,
    "equal": lambda size: torch.full((size,), 0.7),
    "halves": lambda size: random(size).sign() * 1.5,  # in the middle of two powers of two
    "spike": spike,
    "spike in noise": spike_in_noise,
    "falling": lambda size: 0.9 ** torch.arange(size).clamp_max(200),
}

every_contraction = pytest.mark.parametrize("codec", CONTRACTIONS, ids=repr)
every_unbiased = pytest.mark.parametrize("codec", UNBIASED, ids=repr)


def samples_of(codec: Codec, size: int) -> int:
    stochastic = any(isinstance(part, RandomK | AdaptiveRandom) for part in parts(codec)) or is_dithered(codec)
    if not stochastic:
        return 1
    return SAMPLES if size < MILLION else SAMPLES_IF_LARGE


def parts(codec: Codec) -> list[Codec]:
    match codec:
        case Chain():
            return [inner for part in codec.codecs for inner in parts(part)]
        case Shrink():
            return parts(codec.codec)
    return [codec]


def is_dithered(codec: Codec) -> bool:
    return any(part.zeta(MILLION) not in (None, 1.0) for part in parts(codec))


def sampled(codec: Codec, x: Tensor, count: int) -> Tensor:
    """The decoded tensor of `count` samples, one per row."""
    decoded = (payload.decode(payload.encode(x, codec, seed), codec, seed, x) for seed in range(count))
    return torch.stack(list(decoded)).double()


def check_error(codec: Codec, x: Tensor) -> None:
    """Checks that the mean error is at most its bound."""
    delta = codec.delta(x.numel())
    assert delta is not None
    decoded = sampled(codec, x, samples_of(codec, x.numel()))
    errors = (decoded - x.double()).square().sum(1) / x.double().square().sum()
    spread = float(errors.std()) / sqrt(len(errors)) if len(errors) > 1 else 0.0
    assert float(errors.mean()) <= 1 - 1 / delta + SIGMAS * spread + ROUNDING


@every_contraction
def test_the_error_is_at_most_the_bound_of_delta(codec: Codec) -> None:
    for kind, size in product(KINDS.values(), SIZES):
        check_error(codec, kind(size))


@every_contraction
def test_the_error_of_a_million_entries_is_within_its_bound(codec: Codec) -> None:
    check_error(codec, heavy(MILLION))


@every_unbiased
def test_unbiased_codecs_have_the_right_mean_and_grow_by_at_most_zeta(codec: Codec) -> None:
    for kind, size in product(KINDS.values(), SIZES):
        x = kind(size).double()
        zeta, square = codec.zeta(size), float(x.square().sum())
        assert zeta is not None
        decoded = sampled(codec, x.float(), samples_of(codec, size))
        grown = decoded.square().sum(1) / square
        assert float(grown.mean()) <= zeta * (1 + ROUNDING) + SIGMAS * float(grown.std()) / sqrt(len(grown))
        # The squared error of a sample is at most (zeta - 1) in the mean; that of the mean of n samples is 1/n of it,
        # times, in the worst case of a single entry, the square of a normal number.
        off = float((decoded.mean(0) - x).square().sum()) / square
        assert off <= SIGMAS**2 * (zeta - 1) / len(decoded) + ROUNDING**2


def test_bounds_are_attained_by_worst_cases() -> None:
    """Loose bounds would be useless for choosing a codec."""
    size, tight = 1000, {}
    halves = torch.full((size,), 1 / 14)  # of the largest, which has seven steps
    halves[0] = 1.0
    for codec, x in (
        (TopK(0.1), torch.ones(size)),
        (Sign(), spike(size)),
        (Quantize(4, block=size), halves * (1 - 1e-6)),
        (Round(), torch.full((size,), 1.499)),
    ):
        delta = codec.delta(size)
        assert delta is not None
        error = float((sampled(codec, x, 1)[0] - x).square().sum() / x.square().sum())
        tight[repr(codec)] = error / (1 - 1 / delta)
    assert all(0.98 < share <= 1.00001 for share in tight.values()), tight


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_bounds_match_those_of_the_papers(size: int) -> None:
    assert TopK(0.1).delta(size) == pytest.approx(size / max(1, size // 10))
    assert NaturalCompression().zeta(size) == pytest.approx(9 / 8)
    assert Round(3).delta(size) == pytest.approx(16 / 12)
    assert AdaptiveRandom().delta(size) == size
    assert Sign().delta(size) == size
    low = sqrt(size) * 2 ** (1 - 5)
    assert ExponentialDither(2, 5).zeta(size) == pytest.approx(9 / 8 + low * min(1, low))
    both = Chain(TopK(0.1), ExponentialDither(2, 5))
    kept = max(1, round(size / 10))
    inner = ExponentialDither(2, 5).zeta(kept)
    assert inner is not None
    assert Shrink(both).delta(size) == pytest.approx(inner * size / kept)
    assert both.zeta(size) is None


def test_dither_is_within_the_bound_of_qsgd() -> None:
    for size in (1, 10, 1000, MILLION):
        for levels in (1, 4, 100):
            zeta = Dither(levels).zeta(size)
            assert zeta is not None
            assert zeta <= 1 + min(size / levels**2, sqrt(size) / levels)


def test_a_codec_that_may_send_only_zeros_has_no_bound() -> None:
    assert Ternary(1.0).delta(10) is None
    nothing = sampled(Ternary(1.0), torch.ones(10), 1)
    assert not nothing.any()
    assert Chain(RandomK(0.1, unbiased=True), Sign()).delta(MILLION) is None


def test_only_minifloats_have_an_infinite_bound() -> None:
    for codec in CONTRACTIONS:
        small = isinstance(codec, MiniFloat)
        assert isfinite(codec.delta(MILLION) or 0) is not small


@pytest.mark.parametrize("codec", [Sign(), TopK(0.5), Quantize(4), Ternary()], ids=repr)
def test_shrink_rejects_or_keeps_codecs_that_do_not_grow(codec: Codec) -> None:
    if codec.bounds(2).least is None:
        with pytest.raises(ValueError, match=r"the expected growth of .* is not known"):
            Shrink(codec)
    else:
        x = random(20)
        assert torch.equal(sampled(Shrink(codec), x, 1), sampled(codec, x, 1))


def test_codecs_of_a_chain_sample_independently() -> None:
    chain = Chain(RandomK(0.5), RandomK(0.5))
    kept = sampled(chain, torch.ones(8), 400).mean(0)
    assert float((kept - 1 / 4).abs().max()) < SIGMAS * sqrt(3 / 16 / 400)
    twice = Chain(RandomK(0.5, unbiased=True), RandomK(0.5, unbiased=True))
    assert float((sampled(twice, torch.ones(8), 400).mean(0) - 1).abs().max()) < SIGMAS * sqrt(3 / 400)


@pytest.mark.parametrize("ratio", [None, 0.5])
def test_negligible_entries_do_not_break_sampling(ratio: float | None) -> None:
    for x in (torch.tensor([1.0, 1e-20]), torch.tensor([1.0, 1.0, 1e-18, 0.0])):
        for unbiased in (False, True):
            decoded = sampled(AdaptiveRandom(ratio, unbiased=unbiased), x, 3)
            assert bool(decoded.isfinite().all())
            assert float(decoded.abs().max()) > 0


def test_a_ratio_of_an_unknown_number_of_entries_has_no_bound() -> None:
    assert Chain(Nonzero(), TopK(0.1)).delta(20) is None
    assert Chain(Nonzero(), Sign()).delta(20) == 20


@pytest.mark.parametrize("codec", [Dither(4), ExponentialDither(), Dither(4, norm=1)], ids=repr)
def test_a_norm_that_overflows_is_clamped(codec: Codec) -> None:
    x = torch.full((1000,), 3e37)
    assert bool(sampled(codec, x, 1).isfinite().all())
