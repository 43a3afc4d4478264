"""Models: weights close to the entropy, equal at both ends, and never 0 for a symbol that occurs."""

import zlib

import numpy as np
import pytest

from thinwire import GenNorm, Histogram, Laplace, Normal, PayloadError
from thinwire.entropy import Model
from thinwire.entropy.gen_norm import by_symbol
from thinwire.entropy.grids import GRIDS, INTEGERS, MINIFLOATS, WIDE
from thinwire.entropy.parameters import PARAMETERS, SHAPES

from .sample_symbols import Bytes, cost, entries, entropy, floats, integers

MODELS = [Histogram(), GenNorm(), GenNorm("moments"), Normal(), Laplace()]


def counts_of(symbols: Bytes) -> np.ndarray:
    return np.bincount(symbols, minlength=256)


def weights_of(model: Model, counts: np.ndarray) -> np.ndarray:
    parameters, found = model.fit(counts), model.fit_with_weights(counts)
    assert parameters is not None
    weights, used = model.weights(parameters, len(counts))
    assert used == len(parameters)
    assert found is not None
    assert found[0] == parameters
    assert (found[1] == weights).all(), "both ends have the same table"
    assert (weights[counts > 0] > 0).all()
    assert 0 <= weights.min() <= weights.max() < 2**40
    return weights


@pytest.mark.parametrize("shape", [0.4, 0.5, 0.7, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("form", ["8-bit", "8-bit, narrow", "4-bit", "fp8-152", "fp8-143", "fp4-121"])
def test_a_fitted_distribution_is_within_half_a_percent_of_the_entropy(shape: float, form: str) -> None:
    x = entries(shape, 200_000)
    x = x[np.abs(x) < 40 ** (1 / shape)]
    symbols = {
        "8-bit": lambda: integers(x, 8, 120 / np.abs(x).max()),
        "8-bit, narrow": lambda: integers(x, 8, 2 / x.std()),
        "4-bit": lambda: integers(x[np.abs(x) < 4 * x.std()], 4, 1.7 / x.std()),
        "fp8-152": lambda: floats(x / x.std() / 1000, "fp8-152"),
        "fp8-143": lambda: floats(x / x.std() / 30, "fp8-143"),
        "fp4-121": lambda: floats(x / x.std() * 0.8, "fp4-121"),
    }[form]()
    counts = counts_of(symbols)
    assert cost(counts, weights_of(GenNorm(), counts)) < 1.005 * entropy(counts)


def test_fitted_parameters_match_the_sampled_distribution() -> None:
    for shape in (0.5, 1.0, 2.0):
        counts = counts_of(floats(entries(shape, 300_000) / 1000, "fp8-152"))
        parameters = GenNorm(grid="fp8-152").fit(counts)
        assert parameters is not None
        assert len(parameters) <= 12
        _, found, scale, location, _, _ = PARAMETERS.unpack(parameters)
        assert SHAPES[found] == pytest.approx(shape, rel=0.05)
        unit = MINIFLOATS["fp8-152"].unit / 32
        assert 2.0 ** (scale / 64) * unit == pytest.approx(1e-3, rel=0.1)
        assert abs(location) <= 1


def test_a_distribution_of_the_wrong_shape_costs_more() -> None:
    counts = counts_of(floats(entries(0.5, 100_000) / 1000, "fp8-152"))
    general, normal, laplace = (cost(counts, weights_of(model, counts)) for model in (GenNorm(), Normal(), Laplace()))
    assert general < laplace < normal


def test_an_off_center_peak_is_fitted() -> None:
    counts = np.zeros(256, np.int64)
    counts[17:24] = [10, 100, 1000, 5000, 1000, 100, 10]
    assert cost(counts, weights_of(GenNorm(grid="integers"), counts)) < 1.03 * entropy(counts)


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({0: 1}, id="the first symbol once"),
        pytest.param({255: 10**9}, id="the last symbol only"),
        pytest.param({0: 1, 255: 1}, id="both ends"),
        pytest.param({7: 2**40, 8: 1}, id="nearly one only"),
        pytest.param(dict.fromkeys(range(256), 3), id="all alike"),
        pytest.param({i: 2**i for i in range(40)}, id="each twice the last"),
        pytest.param(dict.fromkeys(range(0, 256, 17), 1), id="with gaps"),
    ],
)
def test_every_symbol_that_occurs_has_a_weight(model: Model, counts: dict[int, int]) -> None:
    table = np.zeros(256, np.int64)
    table[list(counts)] = list(counts.values())
    weights_of(model, table)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_no_symbols_give_no_parameters(model: Model) -> None:
    assert model.fit(np.zeros(256, np.int64)) is None
    assert model.fit_with_weights(np.zeros(256, np.int64)) is None


def test_nan_codes_need_a_table() -> None:
    counts = counts_of(floats(entries(1.0, 1000), "fp8-152"))
    counts[255] += 1
    assert GenNorm(grid="fp8-152").fit(counts) is None
    weights_of(Histogram(), counts)


@pytest.mark.parametrize("alphabet", [2, 3, 255, 256, 257, 1000, 65_536])
def test_tables_are_near_the_entropy_for_any_alphabet(alphabet: int) -> None:
    random = np.random.default_rng(alphabet)
    for counts in (
        random.integers(0, 1000, alphabet),
        (random.random(alphabet) < 0.05) * random.integers(1, 10**6, alphabet),
        np.arange(alphabet) == alphabet - 1,
    ):
        counts = counts.astype(np.int64)
        if counts.any():
            assert cost(counts, weights_of(Histogram(), counts)) <= entropy(counts) + 0.01


def test_a_distribution_over_16_bit_symbols_is_near_the_entropy() -> None:
    x = entries(0.7, 100_000)
    counts = np.bincount(np.round(x * 100).astype(np.int64).clip(-30_000, 30_000) + 31_000, minlength=65_536)
    # Most of the symbols occur once or never, so their true probabilities are not known.
    assert cost(counts, weights_of(GenNorm("moments"), counts)) < 1.05 * entropy(counts)


def test_a_table_takes_less_than_6_bits_per_symbol() -> None:
    counts = counts_of(integers(entries(1.0, 100_000), 8, 12))
    parameters = Histogram().fit(counts)
    assert parameters is not None
    assert len(parameters) < 6 / 8 * np.count_nonzero(counts)


def test_by_symbol_counts_packed_symbols_separately() -> None:
    counts = np.zeros(256, np.int64)
    counts[0x3A], counts[0xA0] = 5, 7
    assert by_symbol(counts, 4)[[0x3, 0xA, 0x0]].tolist() == [5, 12, 7]
    assert by_symbol(counts, 8) is counts
    assert by_symbol(counts, 1).sum() == 8 * 12


def test_tables_are_the_same_on_every_machine() -> None:
    """Frozen: a difference in one weight between two ends would make payloads unreadable."""
    sums = []
    for code, grid in sorted(GRIDS.items()):
        last = len(grid.halves) - 1
        alphabet = 65_536 if grid is WIDE else 256
        for shape, scale, location in ((64, 250, 0), (96, 485, -3), (128, 600, 4064), (160, 100, 300), (255, -900, 9)):
            weights, _ = GenNorm.weights(PARAMETERS.pack(code, shape, scale, location, last // 9, last), alphabet)
            sums.append(zlib.crc32(weights.astype("<i8").tobytes()))
    assert zlib.crc32(np.array(sums, "<u4").tobytes()) == 3334532873


def test_the_grids_are_those_of_the_papers() -> None:
    numbers = {name: grid.numbers for name, grid in MINIFLOATS.items()}
    assert {name: len(of) for name, of in numbers.items()} == {"fp8-152": 247, "fp8-143": 239, "fp4-121": 11}
    assert numbers["fp4-121"].tolist() == [-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3]
    for name, largest, smallest in (("fp8-152", 57_344, 2.0**-16), ("fp8-143", 30, 2.0**-12)):
        assert numbers[name][-1] == largest
        assert numbers[name][len(numbers[name]) // 2 + 1] == smallest
    assert INTEGERS[4].numbers.tolist() == list(range(16))


@pytest.mark.parametrize("model", [GenNorm, Histogram], ids=lambda model: model.__name__)
@pytest.mark.parametrize("alphabet", [256, 65_536])
def test_damaged_parameters_raise_or_give_weights(model: type[Model], alphabet: int) -> None:
    random = np.random.default_rng(1)
    counts = np.bincount(random.integers(0, 200, 5000), minlength=alphabet)
    parameters = model("moments").fit(counts) if model is GenNorm else model().fit(counts)
    assert parameters is not None
    refused = 0
    for _ in range(300):
        damaged = bytearray(parameters)
        for _ in range(random.integers(1, 4)):
            damaged[random.integers(len(damaged))] = random.integers(256)
        cut = bytes(damaged[: random.integers(len(damaged) + 1)]) if random.random() < 0.3 else bytes(damaged)
        try:
            weights, used = model.weights(cut, alphabet)
        except PayloadError:
            refused += 1
        else:
            assert weights.shape == (alphabet,)
            assert 0 <= weights.min() <= weights.max() < 2**40
            assert weights.any()
            assert used <= len(cut)
    assert refused > 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GenNorm("guessing"), "fitted by 'likelihood' or 'moments', not 'guessing'"),
        (lambda: Normal(grid="fp8"), "Normal takes one of the grids .*'fp8-152'.* not 'fp8'"),
        (lambda: Laplace(sample=0), "a sample of 1 symbol or more, not 0"),
    ],
)
def test_invalid_arguments_are_an_error(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()
