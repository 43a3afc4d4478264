"""Logarithms and powers of two in fixed point, with the same bits on every machine.

Sender and receiver build a table from the same parameters and must get the same bits, which floating point does not
guarantee. A fixed-point number is an int64 in units of 2**-FRACTION.
"""

from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

FRACTION = 24  # bits after the point
ONE = 1 << FRACTION
STEPS = 10  # bits that index a table; linear interpolation between entries is exact to about 2**-22
LOWER = FRACTION - STEPS
PRECISE = 128  # bits after the point in which tables are computed


def log2(integers: Integers) -> Integers:
    """The fixed-point logarithms of integers from 1 to 2**62."""
    exponent: Integers = np.frexp(integers.astype(np.float64))[1].astype(np.int64) - 1
    exponent -= integers < (np.int64(1) << exponent)  # the conversion may have rounded up to the next power
    up = np.maximum(FRACTION - exponent, 0)
    mantissa = ((integers << up) >> np.maximum(exponent - FRACTION, 0)) - ONE
    logarithm: Integers = (exponent << FRACTION) + _between(_logarithms(), mantissa)
    return logarithm


def exp2(power: Integers) -> Integers:
    """The fixed-point powers of two, below 2**38; rounded down, so 0 for powers of -FRACTION and less."""
    exponent = power >> FRACTION
    scaled = _between(_powers(), power & (ONE - 1))
    power_of_two: Integers = np.where(
        exponent >= 0, scaled << np.clip(exponent, 0, 37), scaled >> np.clip(-exponent, 0, 62)
    )
    return power_of_two


def times(a: Integers, b: int) -> Integers:
    """The fixed-point product; the product of the integers must fit into 62 bits."""
    product: Integers = (a * b) >> FRACTION
    return product


def _between(table: Integers, fraction: Integers) -> Integers:
    i = fraction >> LOWER
    between: Integers = table[i] + (((table[i + 1] - table[i]) * (fraction & ((1 << LOWER) - 1))) >> LOWER)
    return between


@cache
def _powers() -> Integers:
    """2**(i / 2**STEPS), from square roots of square roots of 2."""
    roots = [2 << PRECISE]
    for _ in range(STEPS):
        roots.append(isqrt(roots[-1] << PRECISE))
    table = []
    for i in range(2**STEPS + 1):
        product = 1 << PRECISE
        for bit in range(STEPS + 1):
            if i >> (STEPS - bit) & 1:
                product = product * roots[bit] >> PRECISE
        table.append(product >> (PRECISE - FRACTION))
    return np.array(table, np.int64)


@cache
def _logarithms() -> Integers:
    """log2(1 + i / 2**STEPS), digit by digit: the square of a number has twice its logarithm."""
    table = []
    for i in range(2**STEPS):
        number, logarithm = (2**STEPS + i) << (PRECISE - STEPS), 0
        for _ in range(FRACTION):
            number = number * number >> PRECISE
            digit = number >> (PRECISE + 1)
            number >>= digit
            logarithm = logarithm << 1 | digit
        table.append(logarithm)
    return np.array([*table, ONE], np.int64)
