import math

import pytest
import torch

from thinwire.distributions import (
    LEAST_SHAPE,
    MOST_SHAPE,
    SMALLEST,
    GeneralizedNormal,
    fit_by_likelihood,
    fit_by_moments,
    grid_error,
    grid_scale,
    kolmogorov,
    wasserstein,
)

SHAPES = (0.1, 0.3, 0.7, 1.0, 1.4, 2.0, 3.0, 8.0, 20.0)
FITS = (fit_by_moments, fit_by_likelihood)
FP4 = torch.tensor([-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3])

every_shape = pytest.mark.parametrize("shape", SHAPES)
every_fit = pytest.mark.parametrize("fit", FITS)


def double(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def sample_entries(shape, count, scale=1.0, location=0.0, seed=0):
    torch.manual_seed(seed)
    gamma = torch.distributions.Gamma(double(1 / shape), double(1.0)).sample((count,)).flatten()
    signs = torch.randint(0, 2, (count,)) * 2 - 1
    return location + scale * signs * gamma ** (1 / shape)


def floats(exponent_bits, mantissa_bits, bias):
    """All values of a floating-point format with subnormal numbers and without infinities."""
    sizes = [
        (fraction / 2**mantissa_bits + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
        for exponent in range(2**exponent_bits - 1)
        for fraction in range(2**mantissa_bits)
    ]
    return double(*sorted({sign * size for size in sizes for sign in (-1, 1)}))


@every_shape
def test_the_density_is_the_derivative_of_the_cdf_and_integrates_to_one(shape):
    distribution = GeneralizedNormal(shape, 0.3, 1.0)
    # Magnitudes at equal distances of their logarithms, as the smallest shapes have mass at both extremes.
    sizes = torch.linspace(-60, math.log(1000) / shape, 400_001, dtype=torch.float64).exp() * distribution.scale
    mass = torch.trapezoid(distribution.density(distribution.location + sizes) * sizes, sizes.log())
    assert 2 * mass.item() == pytest.approx(1, rel=1e-8)
    x = distribution.quantile(double(0.01, 0.2, 0.45, 0.7, 0.99))
    step = 1e-5 * (x - distribution.location).abs()
    slope = (distribution.below(x + step) - distribution.below(x - step)) / (2 * step)
    torch.testing.assert_close(slope, distribution.density(x), rtol=1e-6, atol=0)


@every_shape
def test_quantiles_invert_the_cdf_far_into_the_tails(shape):
    distribution = GeneralizedNormal(shape, 2.5)
    far = 10.0 ** -torch.arange(1, 300, dtype=torch.float64)
    near = 0.5 + 10.0 ** -torch.arange(1, 15, dtype=torch.float64)
    shares = torch.cat([far, near, torch.linspace(0, 1, 999, dtype=torch.float64)[1:-1]])
    torch.testing.assert_close(distribution.below(distribution.quantile(shares)), shares, rtol=1e-11, atol=0)
    torch.testing.assert_close(distribution.above(-distribution.quantile(far)), far, rtol=1e-11, atol=0)
    sizes = 10.0 ** torch.linspace(-12, 0, 50, dtype=torch.float64)
    torch.testing.assert_close(
        distribution.quantile(distribution.below(-sizes)),
        -sizes,
        rtol=1e-6,
        atol=1e-14 / distribution.density(0.0).item(),
    )
    assert distribution.quantile(double(0.0, 0.5, 1.0)).tolist() == [-math.inf, 0.0, math.inf]
    torch.testing.assert_close(
        distribution.below(double(-1.0, 2.0)) + distribution.above(double(-1.0, 2.0)), double(1.0, 1.0)
    )


def test_shapes_2_and_1_are_the_normal_and_laplace_distributions():
    x = torch.linspace(-12, 14, 301, dtype=torch.float64)
    for distribution, known in (
        (GeneralizedNormal(2, math.sqrt(2) * 0.7, 0.4), torch.distributions.Normal(double(0.4), double(0.7))),
        (GeneralizedNormal(1, 0.7, 0.4), torch.distributions.Laplace(double(0.4), double(0.7))),
    ):
        torch.testing.assert_close(distribution.density(x), known.log_prob(x).exp())
        torch.testing.assert_close(distribution.below(x), known.cdf(x), rtol=1e-9, atol=1e-16)
        shares = torch.linspace(0.001, 0.999, 99, dtype=torch.float64)
        torch.testing.assert_close(distribution.quantile(shares), known.icdf(shares))
        assert distribution.variance == pytest.approx(known.variance.item())


def test_above_is_accurate_where_1_minus_below_is_not():
    # erfc(10) / 2 and exp(-60) / 2
    assert GeneralizedNormal(2, 1.0).above(10.0).item() == pytest.approx(2.0884875837625448e-45 / 2, rel=1e-12)
    assert GeneralizedNormal(1, 1.0).above(60.0).item() == pytest.approx(math.exp(-60) / 2, rel=1e-12)
    assert GeneralizedNormal(1, 1.0).below(-60.0).item() == pytest.approx(math.exp(-60) / 2, rel=1e-12)


@pytest.mark.parametrize(
    "parameters", [(0.05, 1.0), (21, 1.0), (math.nan, 1.0), (1, 0.0), (1, math.inf), (1, 1.0, math.nan)]
)
def test_invalid_parameters_are_an_error(parameters):
    with pytest.raises(ValueError, match="a distribution"):
        GeneralizedNormal(*parameters)
    with pytest.raises(ValueError, match="a probability is between 0 and 1"):
        GeneralizedNormal(1, 1.0).quantile(1.5)


@pytest.mark.parametrize("shape", [0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0])
def test_fits_recover_the_parameters_of_samples(shape):
    entries = sample_entries(shape, 300_000, scale=1e-3).float()
    likely, moments = fit_by_likelihood(entries), fit_by_moments(entries)
    assert likely.shape == pytest.approx(shape, rel=0.012)
    assert likely.variance == pytest.approx(GeneralizedNormal(shape, 1e-3).variance, rel=0.04 if shape < 0.5 else 0.012)
    assert moments.shape == pytest.approx(shape, rel=0.03)
    assert moments.variance == pytest.approx(entries.double().square().mean().item(), rel=1e-6)
    assert likely.location == moments.location == 0


def test_likelihood_fits_few_entries_better_than_moments():
    errors = {
        fit: [abs(fit(sample_entries(0.4, 4096, seed=seed)).shape / 0.4 - 1) for seed in range(20)] for fit in FITS
    }
    assert sum(errors[fit_by_likelihood]) < 0.6 * sum(errors[fit_by_moments])


def test_with_a_given_shape_only_the_scale_is_fitted():
    entries = sample_entries(0.8, 50_000, scale=1e-4).float()
    normal, laplace = fit_by_likelihood(entries, shape=2), fit_by_likelihood(entries, shape=1)
    assert (normal.shape, laplace.shape) == (2, 1)
    assert normal.scale == pytest.approx(math.sqrt(2) * entries.square().mean().sqrt().item(), rel=1e-4)
    assert laplace.scale == pytest.approx(entries.abs().mean().item(), rel=1e-4)
    with pytest.raises(ValueError, match=r"shape is from 0\.1 to 20, not 30"):
        fit_by_likelihood(entries, shape=30)


@every_fit
def test_a_sample_fits_about_as_well_and_is_deterministic(fit):
    entries = sample_entries(0.7, 500_000).float()
    sampled = fit(entries, sample=50_000)
    assert sampled.shape == pytest.approx(0.7, rel=0.05)
    assert sampled == fit(entries, sample=50_000)
    assert sampled != fit(entries)
    assert fit(entries, sample=10**9) == fit(entries)
    with pytest.raises(ValueError, match="1 entry or more"):
        fit(entries, sample=0)


def test_sampling_does_not_coincide_with_rows():
    entries = sample_entries(1.0, 200_000).reshape(-1, 100)
    entries[:, 0] *= 1000  # a regular sample would be all of these, or none
    sampled = fit_by_likelihood(entries, shape=1, sample=2000)
    assert sampled.scale == pytest.approx(fit_by_likelihood(entries, shape=1).scale, rel=0.5)


@every_fit
def test_the_location_is_given_or_the_median(fit):
    entries = sample_entries(0.7, 100_000, scale=0.1, location=5.0)
    for distribution in (fit(entries, location=None), fit(entries, location=5.0)):
        assert distribution.location == pytest.approx(5, abs=1e-3)
        assert distribution.shape == pytest.approx(0.7, rel=0.03)


@every_fit
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_any_float_type_and_layout_can_be_fitted(fit, dtype):
    entries = sample_entries(1.0, 120_000).reshape(300, 400)
    expected = fit(entries.float())
    found = fit(entries.to(dtype).T)
    assert found.shape == pytest.approx(expected.shape, rel=0.02)
    assert found.scale == pytest.approx(expected.scale, rel=0.02)


@every_fit
def test_constant_entries_have_a_fit(fit):
    assert fit(torch.zeros(10)) == GeneralizedNormal(1.0, SMALLEST)
    assert fit(torch.tensor(0.0)) == GeneralizedNormal(1.0, SMALLEST)
    distribution = fit(torch.full((10,), -0.25))
    assert distribution.shape == pytest.approx(MOST_SHAPE)
    assert distribution.variance == pytest.approx(0.25**2, rel=0.6)
    rare = torch.zeros(10**6)
    rare[7] = 1.0
    assert fit(rare).shape == pytest.approx(LEAST_SHAPE)
    assert fit(torch.full((10,), 1e-42)).scale == SMALLEST
    assert fit_by_likelihood(torch.zeros(3), shape=2) == GeneralizedNormal(2, SMALLEST)


def test_zeros_count_as_the_smallest_magnitude():
    entries = sample_entries(1.0, 50_000).float()
    some, least = entries.clone(), entries.clone()
    some[:100], least[:100] = 0.0, 1e-38
    assert fit_by_likelihood(some).shape == pytest.approx(fit_by_likelihood(least).shape, rel=1e-3)


@every_fit
def test_zeros_can_be_excluded(fit):
    entries = sample_entries(1.4, 50_000).float()
    half = torch.stack([entries, torch.zeros_like(entries)])
    assert fit(half).shape < 1
    assert fit(half, zeros=False) == fit(entries)
    assert fit(torch.zeros(5), zeros=False) == fit(torch.zeros(5))


@every_fit
@pytest.mark.parametrize("what", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_an_error(fit, what):
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit(torch.tensor([1.0, what, 2.0]))


@every_fit
def test_empty_and_integer_tensors_are_an_error(fit):
    with pytest.raises(ValueError, match="cannot be fitted to an empty tensor"):
        fit(torch.empty(0, 3))
    with pytest.raises(ValueError, match=r"floating-point numbers, not torch\.int64"):
        fit(torch.arange(3))


@pytest.mark.parametrize("distance", [wasserstein, kolmogorov])
def test_distances_are_smaller_for_the_fitting_distribution(distance):
    entries = sample_entries(0.7, 200_000, scale=1e-3).float()
    own, normal = fit_by_likelihood(entries), fit_by_likelihood(entries, shape=2)
    assert distance(entries, own) < 0.3 * distance(entries, normal)
    assert distance(1000 * entries, GeneralizedNormal(own.shape, 1000 * own.scale)) == pytest.approx(
        distance(entries, own), rel=1e-4
    )
    with pytest.raises(ValueError, match="entries"):
        distance(torch.tensor([1.0, math.nan, 3.0]), own)


def test_wasserstein_is_exact_for_entries_that_are_quantiles():
    distribution = GeneralizedNormal(0.7, 2.0, 1.0)
    entries = distribution.quantile(torch.linspace(0, 1, 3000, dtype=torch.float64)[1:-1].float())
    entries = torch.cat([double(-100.0), entries, double(100.0)])  # the ends are dropped
    assert wasserstein(entries, distribution) < 1e-3
    deviation = entries.std(correction=0).item()
    assert wasserstein(entries + 3, distribution) == pytest.approx(3 / deviation, rel=1e-3)
    with pytest.raises(ValueError, match="a deviation of 0"):
        wasserstein(torch.ones(5), distribution)


def test_kolmogorov_is_the_largest_difference_of_the_cdfs():
    distribution = GeneralizedNormal(1, 1.0)
    assert kolmogorov(torch.zeros(4), distribution) == pytest.approx(0.5)
    assert kolmogorov(distribution.quantile(double(0.1, 0.5, 0.9)), distribution) == pytest.approx(
        1 / 3 - 0.1, abs=1e-6
    )
    entries = sample_entries(1.0, 400_000)
    assert kolmogorov(entries, distribution) == pytest.approx(kolmogorov(entries, distribution, sample=None), abs=0.003)


@pytest.mark.parametrize(
    ("shape", "scale", "error"),
    [
        (0.4, 0.0122, 0.110),
        (0.5, 0.0529, 0.081),
        (0.7, 0.2369, 0.055),
        (1.0, 0.6502, 0.036),
        (1.4, 1.163, 0.026),
        (2.0, 1.731, 0.020),
    ],
)
def test_the_best_scales_for_4_bits_match_known_values(shape, scale, error):
    # The known values come from samples, so they are approximate.
    assert grid_scale(FP4, shape) == pytest.approx(scale, rel=0.015)
    assert grid_error(FP4, shape, grid_scale(FP4, shape)) == pytest.approx(error, rel=0.05)
    assert grid_error(FP4, shape, grid_scale(FP4, shape)) <= grid_error(FP4, shape, scale)


def test_the_best_scale_of_a_small_shape_has_a_small_error():
    assert grid_error(FP4, 0.3, grid_scale(FP4, 0.3)) == pytest.approx(0.14, abs=0.005)


def test_grid_error_matches_the_measured_rounding_error():
    entries, scale = sample_entries(0.7, 1_000_000), 0.4
    nearest = FP4.double()[torch.bucketize(entries * scale, (FP4[1:] + FP4[:-1]).double() / 2)] / scale
    error = (nearest - entries).square().mean().item() / GeneralizedNormal(0.7, 1.0).variance
    assert grid_error(FP4, 0.7, scale) == pytest.approx(error, rel=0.02)


@pytest.mark.parametrize("values", [FP4, floats(4, 3, 10), torch.arange(-2.0, 2.0), double(-1.0, 1.0)])
def test_no_other_scale_has_a_smaller_error(values):
    for shape in (0.1, 0.137, 0.52, 1.03, 1.9, 8.5, 20.0):
        best = grid_scale(values, shape)
        others = [best * 2 ** (step / 8) for step in range(-24, 25)]
        least = min(grid_error(values, shape, other) for other in others)
        assert grid_error(values, shape, best) <= 1.012 * least  # octaves are alike to 1 %


def test_an_invalid_grid_is_an_error():
    for values in (double(1.0), double(1.0, 0.0), double(0.0, 0.0), double(0.0, math.inf)):
        with pytest.raises(ValueError, match="two or more finite values that increase"):
            grid_scale(values, 1.0)
    with pytest.raises(ValueError, match=r"shape is from 0\.1"):
        grid_scale(FP4, 0.0)
