"""Fits the distribution of symbols. Only the sender does this, so it may use floating point."""

from collections.abc import Callable, Collection
from functools import cache, cached_property
from math import lgamma, log, log2

import numpy as np
from numpy.typing import NDArray

from .grids import Grid
from .model import Integers
from .parameters import SCALE_STEPS, SHAPES, Fit, location_of, position_of

Floats = NDArray[np.float64]

WIDE_SCALE = (3 + 5) * SCALE_STEPS  # a scale of 8 numbers: from there on, the density hardly changes within a cell
FEW = 4  # pieces that are merged then
TOGETHER = 2**12  # points up to which parameters are evaluated together; with more, one evaluation fills the cache
MOST, MOST_STEPS = 2**15 - 1, 40  # largest parameter; steps of the descent


class Fitting:
    """Finds the parameters with which symbols with these counts take the fewest bits."""

    def __init__(self, grid: Grid, counts: Integers, only: int | None) -> None:
        self.grid, self.only = grid, only
        self.first, self.last = np.flatnonzero(counts)[[0, -1]]
        self.counts = counts[self.first : self.last + 1]
        self.total = int(self.counts.sum())
        self.points, self.widths = (piece[self.first : self.last + 1] for piece in grid.pieces)
        self.known: dict[Fit, float] = {}
        self.locations: dict[int, int] = {}  # by scale
        self.distances: dict[int, Floats] = {}  # their logarithms, by center
        self.center = self._median()
        self.by_moments = self._by_moments()
        if grid.bits == 8 and (grid.centered or self.by_moments.scale > WIDE_SCALE):
            self.points, self.widths = _merged(self.points, FEW) // FEW, _merged(self.widths, FEW)

    def _median(self) -> float:
        """The median, assuming uniform entries within a cell. For steep distributions, far better than the mean."""
        below = np.cumsum(self.counts)
        half = below[-1] / 2
        cell = int(np.searchsorted(below, half))
        low, width = self.points[cell, 0] - self.widths[cell, 0] // 2, self.widths[cell].sum()
        return float(low + width * (half - (below[cell] - self.counts[cell])) / self.counts[cell])

    def _by_moments(self) -> Fit:
        """The fit from the mean magnitude and mean square, whose ratio gives the shape."""
        sizes = np.abs(self.points - self.center) + 0.5
        size, square = (self.counts @ _means(sizes)) / self.total, (self.counts @ _means(sizes**2)) / self.total
        shape = int(np.searchsorted(-_ratios(), -square / size**2)) if self.only is None else self.only
        power = SHAPES[min(shape, len(SHAPES) - 1)]
        return self._fit_of(shape, round((log2(size) + (lgamma(1 / power) - lgamma(2 / power)) / log(2)) * SCALE_STEPS))

    def by_likelihood(self) -> Fit:
        """First the shape, with the best scale for narrow cells; then shape and scale, for the actual cells."""
        best = self.by_moments
        if self.only is None:
            best = self._downhill(best, lambda fit, step: [self._of_shape(fit.shape + i) for i in (-step, step)], 8)
        else:
            best = self._best([best, self._of_shape(self.only)])
        return self._downhill(best, self._near, 2)

    def _downhill(self, best: Fit, near: Callable[[Fit, int], list[Fit]], step: int) -> Fit:
        """Descend to the best of the neighbors, with steps that shrink if none is better."""
        for _ in range(MOST_STEPS):
            better = self._best([best, *near(best, step)])
            if better == best:
                step //= 2
                if not step:
                    break
            best = better
        return best

    def _near(self, fit: Fit, step: int) -> list[Fit]:
        shapes = (0,) if self.only is not None else (-step, 0, step)
        steps = [(i, j) for i in shapes for j in (-2 * step, 0, 2 * step) if i or j]
        return [self._fit_of(fit.shape + i, fit.scale + j) for i, j in steps]

    def _of_shape(self, shape: int) -> Fit:
        """The shape with its maximum-likelihood scale, assuming uniform entries within a cell."""
        power = SHAPES[min(max(shape, 0), len(SHAPES) - 1)]
        mean = (self.counts @ _means(np.exp(power * self._from_median))) / self.total
        return self._fit_of(shape, round(log2(power * mean) / power * SCALE_STEPS))

    @cached_property
    def _from_median(self) -> Floats:
        return self._logarithms(self.center)

    def _logarithms(self, center: float) -> Floats:
        """The logarithms of the distances of all points from the center."""
        logarithms: Floats = np.log(np.abs(self.points - center) + 0.5)
        return logarithms

    def _fit_of(self, shape: int, scale: int) -> Fit:
        shape, scale = min(max(shape, 0), len(SHAPES) - 1), min(max(scale, -MOST), MOST)
        if scale not in self.locations:
            self.locations[scale] = location_of(self.grid, scale, self.center)
        return Fit(shape, scale, self.locations[scale])

    def _best(self, fits: list[Fit]) -> Fit:
        if self.points.size <= TOGETHER:
            self._evaluate({fit for fit in fits if fit not in self.known})
        return min(fits, key=self.bits)

    def bits(self, fit: Fit) -> float:
        if fit not in self.known:
            self._evaluate([fit])
        return self.known[fit]

    def _evaluate(self, fits: Collection[Fit]) -> None:
        """Compute the bits of several fits at once: for small alphabets, most of the time is call overhead."""
        if not fits:
            return
        shapes, scales = np.array([(SHAPES[fit.shape], fit.scale * (log(2) / SCALE_STEPS)) for fit in fits]).T
        power = np.array([self._distances(fit) for fit in fits])
        power -= scales[:, None, None]
        np.minimum(np.maximum(power, -44, out=power), 44, out=power)
        power *= shapes[:, None, None]
        np.exp(power, out=power)
        np.minimum(power, 700, out=power)
        np.exp(np.negative(power, out=power), out=power)
        power *= self.widths
        cells = _sums(power)
        cells += 1e-300
        masses = np.add.reduce(cells, 1).tolist()
        for fit, mass, each in zip(fits, masses, np.log(cells, out=cells), strict=True):
            self.known[fit] = float(self.total * log(mass) - self.counts @ each) / log(2)

    def _distances(self, fit: Fit) -> Floats:
        center = position_of(self.grid, fit.scale, fit.location)
        if center not in self.distances:
            self.distances[center] = self._logarithms(center)
        return self.distances[center]


def _merged(pieces: Integers, into: int) -> Integers:
    """The pieces of each cell, merged in groups of `into`."""
    merged: Integers = pieces.reshape(len(pieces), -1, into).sum(2)
    return merged


def _sums(pieces: Floats) -> Floats:
    """The sum over the pieces of each cell; for one or two, np.add.reduce is much slower."""
    match pieces.shape[-1]:
        case 1:
            return pieces[..., 0]
        case 2:
            return np.asarray(pieces[..., 0] + pieces[..., 1])
        case _:
            return np.asarray(np.add.reduce(pieces, -1))


def _means(pieces: Floats) -> Floats:
    return np.asarray(_sums(pieces) / pieces.shape[-1])


@cache
def _ratios() -> Floats:
    """The mean square over the squared mean size, which falls with the shape."""
    return np.exp([lgamma(3 / s) + lgamma(1 / s) - 2 * lgamma(2 / s) for s in SHAPES])
