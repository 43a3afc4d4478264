"""Laws with few parameters: the generalised normal one, and the normal and Laplace's, which are cases of it.

What travels are quantised parameters. How likely each symbol is follows from them in whole numbers (fixed.py), so both
ends have the same table. What is fitted is the sender's affair, and done in floating point.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import lgamma, log, log2
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import PayloadError
from . import fixed
from .fixed import FRACTION, ONE
from .grids import FINE, GRIDS, INTEGERS, MINIFLOATS, WIDE, Grid
from .model import Integers, Model

Floats = NDArray[np.float64]

TOLD = struct.Struct("<BBhhHH")  # grid, shape, scale, location, first symbol, last symbol
SHAPE_STEPS, SCALE_STEPS = 32, 64  # of a doubling
SHAPES = 2.0 ** ((np.arange(256) - 128) / SHAPE_STEPS)  # from 1/16 to 15.7
WITH_SCALE = 64  # a location on a grid around zero is counted in such parts of the scale
LOG2_E = 24_204_406  # in fixed point
FARTHEST = 64 * ONE  # doublings from the scale, beyond which all is alike
STEEPEST = 6 * ONE  # the power of two of -log density beyond which nothing is left
WIDE_LAW = (3 + 5) * SCALE_STEPS  # a scale of 8 numbers, and more: a law hardly changes within a cell then
LARGEST_SCALE = 36 * SCALE_STEPS  # beyond the numbers of every grid
FEW = 4  # pieces that are looked at together then
MOST, MOST_STEPS = 2**15 - 1, 40  # of a parameter; of the way downhill
PIECE, WHOLE = 10 * ONE, 14 * ONE  # the logarithms of the largest weights, before FRACTION


class Fit(NamedTuple):
    """Parameters, as they are counted on the wire."""

    shape: int
    scale: int
    location: int


@dataclass(frozen=True, repr=False)
class GenNorm(Model):
    """The generalised normal law: the density falls as exp(-|x / scale| ** shape) on both sides of a location."""

    fitted: str = "likelihood"  # by what makes the symbols most likely; "moments": from mean size and square, faster
    grid: str | None = None  # what symbols stand for: "integers", "fp8-152", "fp8-143", "fp4-121"; None: find out
    sample: int | None = None  # symbols that are looked at for that, about; None: all

    code = 1
    only_shape: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.fitted not in ("likelihood", "moments"):
            raise ValueError(f"{name} is fitted by 'likelihood' or 'moments', not {self.fitted!r}")
        if self.grid not in (None, "integers", *MINIFLOATS):
            known = ", ".join(map(repr, ("integers", *MINIFLOATS)))
            raise ValueError(f"{name} knows the grids {known}, not {self.grid!r}")
        if self.sample is not None and not (isinstance(self.sample, int) and self.sample > 0):
            raise ValueError(f"{name} looks at a sample of 1 symbol or more, not {self.sample!r}")

    def fit(self, counts: Integers) -> bytes | None:
        """Of the grids that may be meant, the one whose fit from moments takes the fewest bits."""
        tried = [
            _Fitting(grid, of_symbols[: len(grid.halves)], self._only)
            for grid in (self._grids(len(counts)) if counts.any() else ())
            for of_symbols in [by_symbol(counts, grid.bits)]
            if not of_symbols[len(grid.halves) :].any()
        ]
        if not tried:
            return None
        fitting = min(tried, key=lambda fitting: fitting.bits(fitting.by_moments))
        found = fitting.by_likelihood() if self.fitted == "likelihood" else fitting.by_moments
        # Where there is more than was looked at, any symbol may be there.
        first, last = (fitting.first, fitting.last) if self.sample is None else (0, len(fitting.grid.halves) - 1)
        return TOLD.pack(fitting.grid.code, *found, first, last)

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
    def weights(told: bytes, alphabet: int) -> tuple[Integers, int]:
        if len(told) < TOLD.size:
            raise PayloadError("the parameters of a law are cut off")
        return _weights(bytes(told[: TOLD.size]), alphabet), TOLD.size


@dataclass(frozen=True, repr=False)
class Normal(GenNorm):
    """The normal law: GenNorm of shape 2."""

    only_shape = 2.0


@dataclass(frozen=True, repr=False)
class Laplace(GenNorm):
    """Laplace's law: GenNorm of shape 1."""

    only_shape = 1.0


def by_symbol(counts: Integers, bits: int) -> Integers:
    """How often each symbol of so many bits is there, where several are packed into what was counted."""
    if bits >= 8:
        return counts
    there = np.arange(len(counts))
    of_symbols = np.zeros(2**bits, np.int64)
    for shift in range(0, 8, bits):
        np.add.at(of_symbols, (there >> shift) & (2**bits - 1), counts)
    return of_symbols


@lru_cache(maxsize=1024)
def _weights(told: bytes, alphabet: int) -> Integers:
    code, shape, scale, location, first, last = TOLD.unpack(told)
    grid = GRIDS.get(code)
    if grid is None or (grid is WIDE) != (alphabet > 256) or not first <= last < len(grid.halves):
        raise PayloadError(f"a law over symbols {first} to {last} of grid {code}, where there are {alphabet}")
    points, widths = (piece[first : last + 1] for piece in grid.pieces)
    from_location = np.abs(points - _location(grid, scale, location))
    doublings = fixed.log2(2 * from_location + 1) - ONE - scale * ONE // SCALE_STEPS
    exponent = int(fixed.exp2(np.array([(shape - 128) * ONE // SHAPE_STEPS]))[0])
    power = fixed.exp2(np.minimum(fixed.times(np.clip(doublings, -FARTHEST, FARTHEST), exponent), STEEPEST))
    likely = fixed.log2(widths) - fixed.times(power, LOG2_E)
    cells = fixed.exp2(likely - likely.max() + PIECE).sum(1)
    weights = np.zeros(alphabet, np.int64)
    if grid.bits >= 8:
        weights[first : last + 1] = np.maximum(cells, 1)
        return weights
    # Several symbols in one, which are expected to have nothing to do with each other.
    of_symbol = np.full(2**grid.bits, -FARTHEST)
    of_symbol[first : last + 1] = fixed.log2(np.maximum(cells, 1))
    there, likely = np.arange(256), np.zeros(256, np.int64)
    for shift in range(0, 8, grid.bits):
        likely += of_symbol[(there >> shift) & (2**grid.bits - 1)]
    weights = np.maximum(fixed.exp2(likely - likely.max() + WHOLE), 1)
    weights[likely < 0] = 0
    return weights


def _location(grid: Grid, scale: int, location: int) -> int:
    """In FINE-th parts of a unit."""
    if grid is WIDE:
        return (location + 2**15) * FINE
    if not grid.centred:
        return location
    wide = fixed.exp2(np.array([min(scale, LARGEST_SCALE) * ONE // SCALE_STEPS]))
    return int(wide[0]) * location // WITH_SCALE >> FRACTION


def _to_location(grid: Grid, scale: int, place: float) -> int:
    """The other way round, to the nearest that can be told."""
    if grid is WIDE:
        told = place / FINE - 2**15
    elif grid.centred:
        told = place / 2.0 ** (scale / SCALE_STEPS) * WITH_SCALE
    else:
        told = place
    return round(min(max(told, -(2**15)), 2**15 - 1))


class _Fitting:
    """Looks for the parameters under which symbols that are there so often take the fewest bits."""

    def __init__(self, grid: Grid, counts: Integers, only: int | None) -> None:
        self.grid, self.only = grid, only
        self.first, self.last = np.flatnonzero(counts)[[0, -1]]
        self.counts = counts[self.first : self.last + 1]
        self.total = int(self.counts.sum())
        self.points, self.widths = (piece[self.first : self.last + 1] for piece in grid.pieces)
        self.place = self._median()
        self.by_moments = self._by_moments()
        if grid.bits == 8 and (grid.centred or self.by_moments.scale > WIDE_LAW):
            self.points, self.widths = _merged(self.points, FEW) // FEW, _merged(self.widths, FEW)
        self.known: dict[Fit, float] = {}

    def _median(self) -> float:
        """As if entries were spread evenly in their cells. Of a steep law, it is found far better than the mean."""
        below = np.cumsum(self.counts)
        half = below[-1] / 2
        cell = int(np.searchsorted(below, half))
        low, width = self.points[cell, 0] - self.widths[cell, 0] // 2, self.widths[cell].sum()
        return float(low + width * (half - (below[cell] - self.counts[cell])) / self.counts[cell])

    def _by_moments(self) -> Fit:
        """From mean size and mean square: their ratio tells the shape."""
        sizes = np.abs(self.points - self.place) + 0.5
        size, square = (self.counts @ sizes.mean(1)) / self.total, (self.counts @ (sizes**2).mean(1)) / self.total
        shape = int(np.searchsorted(-_ratios(), -square / size**2)) if self.only is None else self.only
        power = SHAPES[min(shape, len(SHAPES) - 1)]
        return self._told(shape, round((log2(size) + (lgamma(1 / power) - lgamma(2 / power)) / log(2)) * SCALE_STEPS))

    def by_likelihood(self) -> Fit:
        """First the shape, each with the scale that is best where cells are small; then both, as cells are not."""
        best = self.by_moments
        if self.only is None:
            best = self._downhill(best, lambda fit, step: [self._of_shape(fit.shape + i) for i in (-step, step)], 8)
        else:
            best = min(best, self._of_shape(self.only), key=self.bits)
        return self._downhill(best, self._near, 2)

    def _downhill(self, best: Fit, near: Callable[[Fit, int], list[Fit]], step: int) -> Fit:
        """To the best of those near, by steps that shrink where none is better."""
        for _ in range(MOST_STEPS):
            better = min([best, *near(best, step)], key=self.bits)
            if better == best:
                step //= 2
                if not step:
                    break
            best = better
        return best

    def _near(self, fit: Fit, step: int) -> list[Fit]:
        shapes = (0,) if self.only is not None else (-step, 0, step)
        steps = [(i, j) for i in shapes for j in (-2 * step, 0, 2 * step) if i or j]
        return [self._told(fit.shape + i, fit.scale + j) for i, j in steps]

    def _of_shape(self, shape: int) -> Fit:
        """With the scale that makes the symbols most likely, if all in a cell were spread evenly."""
        power = SHAPES[min(max(shape, 0), len(SHAPES) - 1)]
        mean = (self.counts @ np.exp(power * np.log(np.abs(self.points - self.place) + 0.5)).mean(1)) / self.total
        return self._told(shape, round(log2(power * mean) / power * SCALE_STEPS))

    def _told(self, shape: int, scale: int) -> Fit:
        shape, scale = min(max(shape, 0), len(SHAPES) - 1), min(max(scale, -MOST), MOST)
        return Fit(shape, scale, _to_location(self.grid, scale, self.place))

    def bits(self, fit: Fit) -> float:
        if fit not in self.known:
            sizes = np.abs(self.points - _location(self.grid, fit.scale, fit.location)) + 0.5
            power = np.exp(SHAPES[fit.shape] * (np.log(sizes) - fit.scale * (log(2) / SCALE_STEPS)).clip(-44, 44))
            cells = (self.widths * np.exp(-power.clip(max=700))).sum(1) + 1e-300
            self.known[fit] = float(self.total * log(cells.sum()) - self.counts @ np.log(cells)) / log(2)
        return self.known[fit]


def _merged(pieces: Integers, into: int) -> Integers:
    """The pieces of each cell, in groups of as many."""
    merged: Integers = pieces.reshape(len(pieces), -1, into).sum(2)
    return merged


@cache
def _ratios() -> Floats:
    """The mean square over the squared mean size, which falls with the shape."""
    return np.exp([lgamma(3 / s) + lgamma(1 / s) - 2 * lgamma(2 / s) for s in SHAPES])
