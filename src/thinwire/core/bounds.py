"""Bounds on a codec's compression error, for every tensor of a given number of entries.

C(x) is the decoded tensor of x, E the mean over the codec's random numbers, |x| the Euclidean norm.

* unbiased: E C(x) = x, and E|C(x)|^2 <= zeta |x|^2;
* a contraction: E|C(x) - x|^2 <= (1 - 1/delta) |x|^2, so that the residual of error feedback stays bounded.

The error of an unbiased codec may exceed its input. Divided by zeta, the codec is a contraction. The bounds leave out
the rounding and overflow of floating-point arithmetic.
"""

from math import inf, sqrt
from typing import NamedTuple


class Bounds(NamedTuple):
    """The bounds of a codec. None: it has no such bound, or none is known.

    Examples:
        >>> from thinwire import Quantize, TopK
        >>> TopK(0.01).bounds(1000).delta  # keeps at least 1 / delta of the squared norm
        100.0
        >>> Quantize(8).bounds(1000).zeta is None, Quantize(8, stochastic=True).bounds(1000).zeta is None
        (True, False)
    """

    zeta: float | None = None
    delta: float | None = None  # infinite: the error never exceeds the input, and may equal it
    least: float | None = None  # <E C(x), x> >= least |x|^2
    most: float = 1.0  # E|C(x)|^2 <= most <E C(x), x>, if `least` is known
    projects: bool = False  # the decoded tensor has some entries unchanged, and zeros

    @property
    def shrunk(self) -> "Bounds":
        """The bounds of the decoded tensor divided by `most`."""
        return self if self.least is None or self.most == 1 else contraction(self.most / self.least)


UNKNOWN = Bounds()


def unbiased(zeta: float) -> Bounds:
    return Bounds(zeta, 1 / (2 - zeta) if zeta < 2 else None, 1.0, zeta)


def contraction(delta: float) -> Bounds:
    return Bounds(delta=delta)


def projection(delta: float) -> Bounds:
    """The bounds of a codec that keeps some entries unchanged, with at least 1/delta of the squared norm."""
    return Bounds(delta=delta, least=1 / delta, projects=True)


LOSSLESS = Bounds(1.0, 1.0, 1.0, projects=True)


def then(first: Bounds, second: Bounds) -> Bounds:
    """The bounds of one codec and another one after it, with random numbers of its own."""
    if first == LOSSLESS:
        return second
    if second == LOSSLESS:
        return first
    if first.zeta is not None and second.zeta is not None:
        return unbiased(first.zeta * second.zeta)
    if first.projects and first.delta is not None:  # the second's error is in the kept entries only
        least = None if second.least is None else second.least / first.delta
        delta = None if second.delta is None else first.delta * second.delta
        return Bounds(None, delta, least, second.most, second.projects)
    if first.zeta is not None and second.delta is not None:
        return _rounded(first.zeta, _error(second.delta))
    again = UNKNOWN if first.delta is None else _again(_error(first.delta), second)
    if first.least is not None and second.zeta is not None:
        return again._replace(least=first.least, most=first.most * second.zeta)
    return again


def _error(delta: float) -> float:
    """The largest error, as a share of the norm."""
    return sqrt(1 - 1 / delta)


def _within(square: float) -> Bounds:
    return contraction(1 / (1 - square)) if square < 1 else UNKNOWN


def _rounded(zeta: float, error: float) -> Bounds:
    """The bounds of an unbiased codec, and one after it with this relative error."""
    delta = _within((sqrt(zeta - 1) + error * sqrt(zeta)) ** 2).delta
    least = 1 - error * sqrt(zeta)
    return Bounds(None, delta, least, (1 + error) ** 2 * zeta / least) if least > 0 else Bounds(delta=delta)


def _again(error: float, second: Bounds) -> Bounds:
    """The bounds of a codec with this relative error, and another one after it."""
    if second.zeta is not None:  # its own error is orthogonal to the first's, on average
        return _within(error**2 + (second.zeta - 1) * (1 + error) ** 2)
    if second.delta is not None and second.delta < inf:
        return _within((error + _error(second.delta) * (1 + error)) ** 2)
    return UNKNOWN


class Bounded:
    """The bounds that a codec states."""

    def bounds(self, size: int) -> Bounds:
        """The bounds for tensors of `size` entries, at least one."""
        return UNKNOWN

    def entries(self, size: int) -> int:
        """The largest number of entries in the signal for a tensor of `size` entries."""
        return size

    def zeta(self, size: int) -> float | None:
        """For an unbiased codec, the largest factor by which the mean square grows; None if it is biased."""
        return self.bounds(size).zeta

    def delta(self, size: int) -> float | None:
        """At most 1 - 1/delta of the squared norm is lost, on average; None if there is no such bound."""
        return self.bounds(size).delta
