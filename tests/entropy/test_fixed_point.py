from math import log2

import numpy as np
import pytest

from thinwire.entropy import fixed_point as fixed
from thinwire.entropy.fixed_point import FRACTION, ONE

NUMBERS = [*range(1, 300), 2**24 - 1, 2**24, 2**53 + 1, 2**60 - 1, 2**61, 2**62 - 1]


def test_logarithms_are_accurate_to_21_bits() -> None:
    found = fixed.log2(np.array(NUMBERS, np.int64))
    assert found.dtype == np.int64
    for number, logarithm in zip(NUMBERS, found.tolist(), strict=True):
        assert logarithm / ONE == pytest.approx(log2(number), abs=2.0**-21)


def test_logarithms_of_powers_of_two_are_exact() -> None:
    powers = np.arange(62)
    assert (fixed.log2(np.int64(1) << powers) == powers << FRACTION).all()


@pytest.mark.parametrize("power", [-30.0, -24.0, -3.75, -1.0, -0.001, 0.0, 0.3, 0.999, 1.0, 13.9, 37.9])
def test_powers_are_accurate_to_21_bits_or_one_unit(power: float) -> None:
    fixed_power = round(power * ONE)
    found = int(fixed.exp2(np.array([fixed_power]))[0])
    assert found == pytest.approx(2.0 ** (fixed_power / ONE) * ONE, rel=2.0**-21, abs=1)


def test_logarithms_and_powers_are_monotonic() -> None:
    assert (np.diff(fixed.log2(np.arange(1, 100_000))) >= 0).all()
    assert (np.diff(fixed.exp2(np.arange(-4 * ONE, 4 * ONE, 997))) >= 0).all()


def test_products_are_exact() -> None:
    assert fixed.times(np.array([3 * ONE, -3 * ONE]), ONE // 2).tolist() == [3 * ONE // 2, -3 * ONE // 2]
