"""Looks for the parameters of a law that symbols follow, in floating point: that is the sender's affair."""

from collections.abc import Callable, Collection
from functools import cache, cached_property
from math import lgamma, log, log2

import numpy as np
from numpy.typing import NDArray

from .grids import Grid
from .model import Integers
from .parameters import SCALE_STEPS, SHAPES, Fit, location_of, place_of

Floats = NDArray[np.float64]

WIDE_LAW = (3 + 5) * SCALE_STEPS  # a scale of 8 numbers, and more: a law hardly changes within a cell then
FEW = 4  # pieces that are looked at together then
TOGETHER = 2**12  # points up to which parameters are tried together: of more of them, the nearest caches hold one try
MOST, MOST_STEPS = 2**15 - 1, 40  # of a parameter; of the way downhill


class Fitting:
    """Looks for the parameters under which symbols that are there so often take the fewest bits."""

    def __init__(self, grid: Grid, counts: Integers, only: int | None) -> None:
        self.grid, self.only = grid, only
        self.first, self.last = np.flatnonzero(counts)[[0, -1]]
        self.counts = counts[self.first : self.last + 1]
        self.total = int(self.counts.sum())
        self.points, self.widths = (piece[self.first : self.last + 1] for piece in grid.pieces)
        self.known: dict[Fit, float] = {}
        self.locations: dict[int, int] = {}  # by scale
        self.distances: dict[int, Floats] = {}  # their logarithms, by place
        self.place = self._median()
        self.by_moments = self._by_moments()
        if grid.bits == 8 and (grid.centered or self.by_moments.scale > WIDE_LAW):
            self.points, self.widths = _merged(self.points, FEW) // FEW, _merged(self.widths, FEW)

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
        size, square = (self.counts @ _means(sizes)) / self.total, (self.counts @ _means(sizes**2)) / self.total
        shape = int(np.searchsorted(-_ratios(), -square / size**2)) if self.only is None else self.only
        power = SHAPES[min(shape, len(SHAPES) - 1)]
        return self._told(shape, round((log2(size) + (lgamma(1 / power) - lgamma(2 / power)) / log(2)) * SCALE_STEPS))

    def by_likelihood(self) -> Fit:
        """First the shape, each with the scale that is best where cells are small; then both, as cells are not."""
        best = self.by_moments
        if self.only is None:
            best = self._downhill(best, lambda fit, step: [self._of_shape(fit.shape + i) for i in (-step, step)], 8)
        else:
            best = self._best([best, self._of_shape(self.only)])
        return self._downhill(best, self._near, 2)

    def _downhill(self, best: Fit, near: Callable[[Fit, int], list[Fit]], step: int) -> Fit:
        """To the best of those near, by steps that shrink where none is better."""
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
        return [self._told(fit.shape + i, fit.scale + j) for i, j in steps]

    def _of_shape(self, shape: int) -> Fit:
        """With the scale that makes the symbols most likely, if all in a cell were spread evenly."""
        power = SHAPES[min(max(shape, 0), len(SHAPES) - 1)]
        mean = (self.counts @ _means(np.exp(power * self._from_median))) / self.total
        return self._told(shape, round(log2(power * mean) / power * SCALE_STEPS))

    @cached_property
    def _from_median(self) -> Floats:
        return self._logarithms(self.place)

    def _logarithms(self, place: float) -> Floats:
        """Of how far all points are from there."""
        logarithms: Floats = np.log(np.abs(self.points - place) + 0.5)
        return logarithms

    def _told(self, shape: int, scale: int) -> Fit:
        shape, scale = min(max(shape, 0), len(SHAPES) - 1), min(max(scale, -MOST), MOST)
        if scale not in self.locations:
            self.locations[scale] = location_of(self.grid, scale, self.place)
        return Fit(shape, scale, self.locations[scale])

    def _best(self, fits: list[Fit]) -> Fit:
        if self.points.size <= TOGETHER:
            self._try({fit for fit in fits if fit not in self.known})
        return min(fits, key=self.bits)

    def bits(self, fit: Fit) -> float:
        if fit not in self.known:
            self._try([fit])
        return self.known[fit]

    def _try(self, fits: Collection[Fit]) -> None:
        """Find out what they take: all at once, as most of the time goes into calls where symbols are of few kinds."""
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
        wholes = np.add.reduce(cells, 1).tolist()
        for fit, whole, each in zip(fits, wholes, np.log(cells, out=cells), strict=True):
            self.known[fit] = float(self.total * log(whole) - self.counts @ each) / log(2)

    def _distances(self, fit: Fit) -> Floats:
        place = place_of(self.grid, fit.scale, fit.location)
        if place not in self.distances:
            self.distances[place] = self._logarithms(place)
        return self.distances[place]


def _merged(pieces: Integers, into: int) -> Integers:
    """The pieces of each cell, in groups of as many."""
    merged: Integers = pieces.reshape(len(pieces), -1, into).sum(2)
    return merged


def _sums(pieces: Floats) -> Floats:
    """Of the pieces of each cell; of one or two, numpy's own take far longer."""
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
