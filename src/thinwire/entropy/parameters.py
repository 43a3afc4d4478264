"""The quantized parameters of a distribution, as they are sent."""

import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from . import fixed_point as fixed
from .fixed_point import FRACTION, ONE
from .grids import FINE, WIDE, Grid

PARAMETERS = struct.Struct("<BBhhHH")  # grid, shape, scale, location, first symbol, last symbol
SHAPE_STEPS, SCALE_STEPS = 32, 64  # per doubling
SHAPES = 2.0 ** ((np.arange(256) - 128) / SHAPE_STEPS)  # from 1/16 to 15.7
WITH_SCALE = 64  # a location on a centered grid is in units of scale / WITH_SCALE
LARGEST_SCALE = 36 * SCALE_STEPS  # beyond the numbers of every grid


class Fit(NamedTuple):
    """Parameters in steps, whose units are given by SHAPES, SCALE_STEPS and `position_of`."""

    shape: int
    scale: int
    location: int


def position_of(grid: Grid, scale: int, location: int) -> int:
    """The position of the location on the grid, in units of 1 / FINE."""
    if grid is WIDE:
        return (location + 2**15) * FINE
    if not grid.centered:
        return location
    return _scale(min(scale, LARGEST_SCALE)) * location // WITH_SCALE >> FRACTION


@lru_cache(maxsize=2**12)
def _scale(scale: int) -> int:
    """A scale in units of 1 / FINE, in fixed point."""
    return int(fixed.exp2(np.array([scale * ONE // SCALE_STEPS]))[0])


def location_of(grid: Grid, scale: int, position: float) -> int:
    """The inverse of `position_of`, rounded to the nearest parameter."""
    if grid is WIDE:
        location = position / FINE - 2**15
    elif grid.centered:
        location = position / 2.0 ** (scale / SCALE_STEPS) * WITH_SCALE
    else:
        location = position
    return round(min(max(location, -(2**15)), 2**15 - 1))
