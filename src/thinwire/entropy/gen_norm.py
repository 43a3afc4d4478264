"""Parametric models: the generalized normal distribution, and its special cases normal and Laplace.

Quantized parameters are sent. The weights of symbols follow from them in fixed point (fixed_point.py), so sender and
receiver have the same table.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import ClassVar

import numpy as np

from ..core import PayloadError
from . import fixed_point as fixed
from .fitting import Fitting
from .fixed_point import ONE
from .grids import GRIDS, INTEGERS, MINIFLOATS, WIDE, Grid
from .model import Integers, Model
from .parameters import PARAMETERS, SCALE_STEPS, SHAPE_STEPS, position_of

LOG2_E = 24_204_406  # in fixed point
FARTHEST = 64 * ONE  # limit of the distance from the scale, in doublings
STEEPEST = 6 * ONE  # limit of log2(-log(density)): beyond, the density is 0
PIECE, PACKED = 10 * ONE, 14 * ONE  # logarithms of the largest weights: of a piece, of packed symbols


@dataclass(frozen=True, repr=False)
class GenNorm(Model):
    """The generalized normal distribution: density proportional to exp(-|(x - location) / scale| ** shape)."""

    fitted: str = "likelihood"  # maximum likelihood; "moments": from mean magnitude and mean square, faster
    grid: str | None = None  # what symbols stand for: "integers", "fp8-152", "fp8-143", "fp4-121"; None: the best
    sample: int | None = None  # approximate number of symbols to fit to; None: all

    code = 1
    only_shape: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.fitted not in ("likelihood", "moments"):
            raise ValueError(f"{name} is fitted by 'likelihood' or 'moments', not {self.fitted!r}")
        if self.grid not in (None, "integers", *MINIFLOATS):
            known = ", ".join(map(repr, ("integers", *MINIFLOATS)))
            raise ValueError(f"{name} takes one of the grids {known}, not {self.grid!r}")
        if self.sample is not None and not (isinstance(self.sample, int) and self.sample > 0):
            raise ValueError(f"{name} takes a sample of 1 symbol or more, not {self.sample!r}")

    def fit(self, counts: Integers) -> bytes | None:
        """The fit on the grid whose fit from moments takes the fewest bits."""
        fitting = _fitting(counts.tobytes(), tuple(grid.code for grid in self._grids(len(counts))), self._only)
        if fitting is None:
            return None
        found = fitting.by_likelihood() if self.fitted == "likelihood" else fitting.by_moments
        # Outside the sample, any symbol may occur.
        first, last = (fitting.first, fitting.last) if self.sample is None else (0, len(fitting.grid.halves) - 1)
        return PARAMETERS.pack(fitting.grid.code, *found, first, last)

    @property
    def _only(self) -> int | None:
        return None if self.only_shape is None else round(128 + SHAPE_STEPS * log2(self.only_shape))

    def _grids(self, alphabet: int) -> list[Grid]:
        if alphabet > 256:
            return [WIDE] if self.grid in (None, "integers") else []
        if self.grid == "integers":
            return list(INTEGERS.values())
        if self.grid is not None:
            return [MINIFLOATS[self.grid]]
        return [INTEGERS[8], INTEGERS[4], INTEGERS[2], *MINIFLOATS.values()]

    @staticmethod
    def weights(parameters: bytes, alphabet: int) -> tuple[Integers, int]:
        if len(parameters) < PARAMETERS.size:
            raise PayloadError("the parameters of a distribution are truncated")
        return _weights(bytes(parameters[: PARAMETERS.size]), alphabet), PARAMETERS.size


@dataclass(frozen=True, repr=False)
class Normal(GenNorm):
    """The normal distribution: GenNorm of shape 2."""

    only_shape = 2.0


@dataclass(frozen=True, repr=False)
class Laplace(GenNorm):
    """The Laplace distribution: GenNorm of shape 1."""

    only_shape = 1.0


def by_symbol(counts: Integers, bits: int) -> Integers:
    """The counts of symbols of `bits` bits, from the counts of bytes that several of them are packed into."""
    if bits >= 8:
        return counts
    of_symbols = [counts.reshape(-1, 2**bits, 2**shift).sum((0, 2)) for shift in range(0, 8, bits)]
    return np.asarray(sum(of_symbols))


@lru_cache(maxsize=1)  # a fit by likelihood often follows one from moments of the same symbols
def _fitting(count_bytes: bytes, codes: tuple[int, ...], only: int | None) -> Fitting | None:
    counts = np.frombuffer(count_bytes, np.int64)
    tried = [
        Fitting(grid, of_symbols[: len(grid.halves)], only)
        for grid in (map(GRIDS.__getitem__, codes) if counts.any() else ())
        for of_symbols in [by_symbol(counts, grid.bits)]
        if not of_symbols[len(grid.halves) :].any()
    ]
    return min(tried, key=lambda fitting: fitting.bits(fitting.by_moments), default=None)


@lru_cache(maxsize=1024)
def _weights(parameters: bytes, alphabet: int) -> Integers:
    code, shape, scale, location, first, last = PARAMETERS.unpack(parameters)
    grid = GRIDS.get(code)
    if grid is None or (grid is WIDE) != (alphabet > 256) or not first <= last < len(grid.halves):
        raise PayloadError(
            f"a distribution over symbols {first} to {last} of grid {code} does not fit an alphabet of {alphabet}"
        )
    points, widths = (piece[first : last + 1] for piece in grid.pieces)
    from_location = np.abs(points - position_of(grid, scale, location))
    doublings = fixed.log2(2 * from_location + 1) - ONE - scale * ONE // SCALE_STEPS
    exponent = int(fixed.exp2(np.array([(shape - 128) * ONE // SHAPE_STEPS]))[0])
    power = fixed.exp2(np.minimum(fixed.times(np.clip(doublings, -FARTHEST, FARTHEST), exponent), STEEPEST))
    likely = fixed.log2(widths) - fixed.times(power, LOG2_E)
    cells = fixed.exp2(likely - likely.max() + PIECE).sum(1)
    weights = np.zeros(alphabet, np.int64)
    if grid.bits >= 8:
        weights[first : last + 1] = np.maximum(cells, 1)
        return weights
    # Several symbols are packed into a byte, and are modeled as independent.
    of_symbol = np.full(2**grid.bits, -FARTHEST)
    of_symbol[first : last + 1] = fixed.log2(np.maximum(cells, 1))
    packed, likely = np.arange(256), np.zeros(256, np.int64)
    for shift in range(0, 8, grid.bits):
        likely += of_symbol[(packed >> shift) & (2**grid.bits - 1)]
    weights = np.maximum(fixed.exp2(likely - likely.max() + PACKED), 1)
    weights[likely < 0] = 0
    return weights
