"""Logarithms and powers of two in whole numbers, which come out the same on every machine.

Two ends that build a table from the same few parameters must build the same table, to the last bit; floating point does
not promise that. A number here is an int64 that counts 2**-FRACTION.
"""

from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

FRACTION = 24  # bits after the point
ONE = 1 << FRACTION
STEPS = 10  # bits that a table is indexed by; between its entries a line is exact to about 2**-22
LOWER = FRACTION - STEPS
PRECISE = 128  # bits after the point, of what tables are computed in


def log2(whole: Integers) -> Integers:
    """Of whole numbers from 1 to 2**62."""
    exponent: Integers = np.frexp(whole.astype(np.float64))[1].astype(np.int64) - 1
    exponent -= whole < (np.int64(1) << exponent)  # the conversion may have rounded up to the next power
    up = np.maximum(FRACTION - exponent, 0)
    mantissa = ((whole << up) >> np.maximum(exponent - FRACTION, 0)) - ONE
    logarithm: Integers = (exponent << FRACTION) + _between(_logarithms(), mantissa)
    return logarithm


def exp2(power: Integers) -> Integers:
    """Of numbers below 2**38, as numbers; rounded down, so 0 for powers of -FRACTION and less."""
    whole = power >> FRACTION
    scaled = _between(_powers(), power & (ONE - 1))
    power_of_two: Integers = np.where(whole >= 0, scaled << np.clip(whole, 0, 37), scaled >> np.clip(-whole, 0, 62))
    return power_of_two


def times(a: Integers, b: int) -> Integers:
    """The product of numbers, where no product of their counts exceeds 62 bits."""
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
