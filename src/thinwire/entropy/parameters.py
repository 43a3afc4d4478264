"""The parameters of a law with few of them, as they are counted on the wire."""

import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from . import fixed_point as fixed
from .fixed_point import FRACTION, ONE
from .grids import FINE, WIDE, Grid

TOLD = struct.Struct("<BBhhHH")  # grid, shape, scale, location, first symbol, last symbol
SHAPE_STEPS, SCALE_STEPS = 32, 64  # of a doubling
SHAPES = 2.0 ** ((np.arange(256) - 128) / SHAPE_STEPS)  # from 1/16 to 15.7
WITH_SCALE = 64  # a location on a grid around zero is counted in such parts of the scale
LARGEST_SCALE = 36 * SCALE_STEPS  # beyond the numbers of every grid


class Fit(NamedTuple):
    """Counted in steps, of which SHAPES, SCALE_STEPS and `place_of` tell what they are."""

    shape: int
    scale: int
    location: int


def place_of(grid: Grid, scale: int, location: int) -> int:
    """Where the location is, in FINE-th parts of a unit."""
    if grid is WIDE:
        return (location + 2**15) * FINE
    if not grid.centered:
        return location
    return _wide(min(scale, LARGEST_SCALE)) * location // WITH_SCALE >> FRACTION


@lru_cache(maxsize=2**12)
def _wide(scale: int) -> int:
    """A scale in FINE-th parts of a unit, in fixed point."""
    return int(fixed.exp2(np.array([scale * ONE // SCALE_STEPS]))[0])


def location_of(grid: Grid, scale: int, place: float) -> int:
    """The other way round, to the nearest that can be told."""
    if grid is WIDE:
        told = place / FINE - 2**15
    elif grid.centered:
        told = place / 2.0 ** (scale / SCALE_STEPS) * WITH_SCALE
    else:
        told = place
    return round(min(max(told, -(2**15)), 2**15 - 1))
