import math

import pytest
import torch

from thinwire import MiniFloat, PayloadError
from thinwire.codecs.mini_float import fitted_scale
from thinwire.entropy.grids import MINIFLOATS
from thinwire.kernels import look_up
from thinwire.wire import payload

from ..helpers import random

FORMS = list(MINIFLOATS)


def round_trip(x: torch.Tensor, codec: MiniFloat) -> torch.Tensor:
    return payload.decode(payload.encode(x, codec, 0), codec, 0, x)


def nearest(x: torch.Tensor, form: str) -> torch.Tensor:
    """The nearest number, by comparison with all; of two equally near, that of larger magnitude."""
    numbers = torch.from_numpy(MINIFLOATS[form].numbers)
    by_size = numbers[numbers.abs().argsort(descending=True, stable=True)]
    within = x.double().clamp(2 * numbers[0], 2 * numbers[-1])
    return by_size[(within[:, None] - by_size).abs().argmin(1)]


@pytest.fixture(params=["compiled", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(look_up, "loops_for", lambda *tensors, **options: None)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("form", FORMS)
def test_every_entry_becomes_the_nearest_number(form: str) -> None:
    numbers = torch.from_numpy(MINIFLOATS[form].numbers)
    between = (numbers[1:] + numbers[:-1]) / 2
    spread = random(3000) * 10.0 ** torch.linspace(-7, 5, 3000)
    for x in (numbers, between, between * (1 + 2**-22), between * (1 - 2**-22), spread, torch.tensor([1e-45, 1e38])):
        x = x.float()
        assert torch.equal(round_trip(x, MiniFloat(form)).double(), nearest(x, form))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("form", FORMS)
def test_entries_that_are_not_finite_stay_so(form: str) -> None:
    x = random(100)
    x[3], x[50], x[99] = math.nan, math.inf, -math.inf
    back = round_trip(x, MiniFloat(form))
    assert (~back.isfinite()).nonzero().flatten().tolist() == [3, 50, 99]
    assert round_trip(x, MiniFloat(form, scaled=True)).isnan().all(), "no scale fits them"


@pytest.mark.parametrize("form", FORMS)
def test_large_entries_are_clamped_to_the_largest_number(form: str) -> None:
    largest = MINIFLOATS[form].numbers[-1]
    assert round_trip(torch.tensor([1e30, -1e30]), MiniFloat(form)).tolist() == [largest, -largest]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_finite_entries_stay_finite(form: str, dtype: torch.dtype) -> None:
    for seed in range(6):
        x = random(4000, seed=seed, dtype=torch.float64) ** 3
        x = (x / x.abs().max() * torch.finfo(dtype).max).to(dtype)
        assert round_trip(x, MiniFloat(form, scaled=True)).isfinite().all()


@pytest.mark.parametrize(("form", "most"), [("fp8-152", 0.004), ("fp8-143", 0.002), ("fp4-121", 0.04)])
@pytest.mark.parametrize("size", [1e-20, 1e-6, 1.0, 1e12])
def test_the_scaled_error_does_not_depend_on_the_magnitude(form: str, most: float, size: float) -> None:
    x = torch.distributions.Laplace(0.0, 1.0).icdf(torch.linspace(0.0005, 0.9995, 4000)) * size
    error = (round_trip(x, MiniFloat(form, scaled=True)) - x).double().square().sum() / x.double().square().sum()
    assert error < most


@pytest.mark.parametrize(("shape", "optimum"), [(1.0, 0.6502), (2.0, 1.731)])
def test_the_fitted_scale_is_near_the_optimum(shape: float, optimum: float) -> None:
    """Against a table of numeric optima for the 4-bit floats."""
    shares = torch.linspace(0, 1, 40_001, dtype=torch.float64)[1:-1]
    distribution = torch.distributions.Laplace(0.0, 1.0) if shape == 1 else torch.distributions.Normal(0.0, 0.5**0.5)
    assert fitted_scale(distribution.icdf(shares).float(), "fp4-121") == pytest.approx(optimum, rel=0.03)


def test_zeros_do_not_change_the_scale() -> None:
    x = random(5000)
    with_zeros = torch.zeros(50_000)
    with_zeros[::10] = x
    assert fitted_scale(with_zeros, "fp4-121") == pytest.approx(fitted_scale(x, "fp4-121"), rel=1e-6)
    assert fitted_scale(torch.zeros(10), "fp4-121") == 1.0


@pytest.mark.parametrize(("form", "bits"), [("fp8-152", 8), ("fp8-143", 8), ("fp4-121", 4)])
def test_an_entry_takes_the_bits_of_its_format(form: str, bits: int) -> None:
    assert payload.encode(random(1000), MiniFloat(form), 0).numel() == 1000 * bits // 8
    assert payload.encode(random(1000), MiniFloat(form, scaled=True), 0).numel() == 1000 * bits // 8 + 4


def test_unused_codes_decode_to_nan() -> None:
    x = random(4)
    buffer = torch.tensor([123, 246, 247, 254], dtype=torch.uint8)
    back = payload.decode(buffer, MiniFloat("fp8-152"), 0, x)
    assert back[:2].tolist() == [0.0, 57_344.0]
    assert back[2:].isnan().all()


def test_a_wrong_scale_raises() -> None:
    codec = MiniFloat("fp4-121", scaled=True)
    packed, scale, like = codec.encode((random(10),), 0)
    for wrong in (scale.double(), scale.repeat(2)):
        with pytest.raises(PayloadError, match="cannot be the one scale"):
            codec.decode((packed, wrong, like), 0)
    with pytest.raises(PayloadError, match="cannot be 10 codes of 4 bits"):
        codec.decode((packed[1:], scale, like), 0)


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="one of 'fp8-152', 'fp8-143', 'fp4-121', not 'fp8'"):
        MiniFloat("fp8")


def test_half_and_double_precision_keep_their_type() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = random(500, dtype=dtype)
        back = round_trip(x, MiniFloat("fp8-152"))
        assert back.dtype == dtype
        assert torch.equal(back.double(), nearest(x.flatten(), "fp8-152"))
