"""Bounds on a codec's error that hold for every tensor of a given size.

C(x) is x after encoding and decoding, E the mean over the codec's random numbers, |x| the Euclidean norm.

* unbiased: E C(x) = x, and E|C(x)|^2 <= zeta |x|^2;
* a contraction: E|C(x) - x|^2 <= (1 - 1/delta) |x|^2, so that the residual of error feedback stays bounded.

The error of an unbiased codec may be larger than its input. Its output divided by zeta is a contraction.
The bounds assume exact arithmetic: they do not include rounding and overflow of floats.
"""

from math import inf, sqrt
from typing import NamedTuple


class Bounds(NamedTuple):
    """The known bounds on a codec's error; None where there is none, or none is known.

    Examples:
        >>> from thinwire import Quantize, TopK
        >>> TopK(0.01).bounds(1000).delta  # keeps at least 1 / delta of the squared norm
        100.0
        >>> Quantize(8).bounds(1000).zeta is None, Quantize(8, stochastic=True).bounds(1000).zeta is None
        (True, False)
    """

    zeta: float | None = None
    delta: float | None = None  # infinite: the error is at most the input, and may equal it
    least: float | None = None  # <E C(x), x> >= least |x|^2
    most: float = 1.0  # E|C(x)|^2 <= most <E C(x), x>, if `least` is known
    projects: bool = False  # the output has some of the entries unchanged, and zeros elsewhere

    @property
    def shrunk(self) -> "Bounds":
        """The bounds after the output is divided by `most`."""
        return self if self.least is None or self.most == 1 else contraction(self.most / self.least)


UNKNOWN = Bounds()


def unbiased(zeta: float) -> Bounds:
    """E C(x) = x, and E|C(x)|^2 <= zeta |x|^2."""
    return Bounds(zeta, 1 / (2 - zeta) if zeta < 2 else None, 1.0, zeta)


def contraction(delta: float) -> Bounds:
    """E|C(x) - x|^2 <= (1 - 1/delta) |x|^2; infinite: the error never exceeds the input."""
    return Bounds(delta=delta)


def projection(delta: float) -> Bounds:
    """A codec that keeps some entries unchanged, with at least 1/delta of the squared norm."""
    return Bounds(delta=delta, least=1 / delta, projects=True)


# The bounds of a codec that decodes to the same bits.
LOSSLESS = Bounds(1.0, 1.0, 1.0, projects=True)


def then(first: Bounds, second: Bounds) -> Bounds:
    """The bounds of one codec followed by a second with independent random numbers."""
    if first == LOSSLESS:
        return second
    if second == LOSSLESS:
        return first
    if first.zeta is not None and second.zeta is not None:
        return unbiased(first.zeta * second.zeta)
    if first.projects and first.delta is not None:  # the second's error is at the kept entries only
        least = None if second.least is None else second.least / first.delta
        delta = None if second.delta is None else first.delta * second.delta
        return Bounds(None, delta, least, second.most, second.projects)
    if first.zeta is not None and second.delta is not None:
        return _after_unbiased(first.zeta, _error(second.delta))
    known = UNKNOWN if first.delta is None else _after_contraction(_error(first.delta), second)
    if first.least is not None and second.zeta is not None:  # on average, <C(x), x> stays the same
        return known._replace(least=first.least, most=first.most * second.zeta)
    return known


def _error(delta: float) -> float:
    """The relative error, |C(x) - x| / |x|, of a contraction."""
    return sqrt(1 - 1 / delta)


def _with_squared_error(square: float) -> Bounds:
    """The bounds of a codec whose mean squared error is at most this fraction of the squared norm."""
    return contraction(1 / (1 - square)) if square < 1 else UNKNOWN


def _after_unbiased(zeta: float, error: float) -> Bounds:
    """An unbiased codec, followed by a contraction with this relative error."""
    delta = _with_squared_error((sqrt(zeta - 1) + error * sqrt(zeta)) ** 2).delta
    least = 1 - error * sqrt(zeta)
    return Bounds(None, delta, least, (1 + error) ** 2 * zeta / least) if least > 0 else Bounds(delta=delta)


def _after_contraction(error: float, second: Bounds) -> Bounds:
    """A contraction with this relative error, followed by a second codec."""
    if second.zeta is not None:  # on average, its error is orthogonal to the first's
        return _with_squared_error(error**2 + (second.zeta - 1) * (1 + error) ** 2)
    if second.delta is not None and second.delta < inf:
        return _with_squared_error((error + _error(second.delta) * (1 + error)) ** 2)
    return UNKNOWN


class Bounded:
    """The bounds on a codec's error."""

    def bounds(self, size: int) -> Bounds:
        """The bounds for tensors of `size` entries, where `size` is at least 1."""
        return UNKNOWN

    def entries(self, size: int) -> int:
        """The largest number of entries that its signal has, for tensors of `size` entries."""
        return size

    def zeta(self, size: int) -> float | None:
        """The factor by which the mean square grows at most, if the codec is unbiased; else None."""
        return self.bounds(size).zeta

    def delta(self, size: int) -> float | None:
        """The mean squared error is at most 1 - 1/delta of the squared norm; None if there is no such bound."""
        return self.bounds(size).delta
