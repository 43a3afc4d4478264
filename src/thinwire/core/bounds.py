"""How far what a codec gives back may be from what it was given, for every tensor of so many entries.

C(x) is what comes back of x, E the mean over what a codec draws, |x| the Euclidean norm.

* unbiased: E C(x) = x, and E|C(x)|^2 <= zeta |x|^2;
* a contraction: E|C(x) - x|^2 <= (1 - 1/delta) |x|^2, so that what error feedback remembers stays bounded.

An unbiased codec may well throw a tensor further away than zero is. Divided by zeta, it is a contraction.
Floats are taken for numbers: what is lost to their last digits, or to their range, is not in these figures.
"""

from math import inf, sqrt
from typing import NamedTuple


class Bounds(NamedTuple):
    """What is known of a codec's error. None: it has no such bound, or none that is known.

    Examples:
        >>> from thinwire import Quantize, TopK
        >>> TopK(0.01).bounds(1000).delta  # keeps at least 1 / delta of the squared norm
        100.0
        >>> Quantize(8).bounds(1000).zeta is None, Quantize(8, stochastic=True).bounds(1000).zeta is None
        (True, False)
    """

    zeta: float | None = None
    delta: float | None = None  # infinite: what comes back is never further away than zero would be
    least: float | None = None  # <E C(x), x> >= least |x|^2
    most: float = 1.0  # E|C(x)|^2 <= most <E C(x), x>, if `least` is known
    projects: bool = False  # what comes back are some of the entries as they are, and zeros

    @property
    def shrunk(self) -> "Bounds":
        """Of what comes back, divided by `most`."""
        return self if self.least is None or self.most == 1 else contraction(self.most / self.least)


UNKNOWN = Bounds()


def unbiased(zeta: float) -> Bounds:
    return Bounds(zeta, 1 / (2 - zeta) if zeta < 2 else None, 1.0, zeta)


def contraction(delta: float) -> Bounds:
    return Bounds(delta=delta)


def projection(delta: float) -> Bounds:
    """Of a codec that keeps entries as they are, and at least 1/delta of the squares."""
    return Bounds(delta=delta, least=1 / delta, projects=True)


LOSSLESS = Bounds(1.0, 1.0, 1.0, projects=True)


def then(first: Bounds, second: Bounds) -> Bounds:
    """Of one codec and another one after it, which draws by itself."""
    if first == LOSSLESS:
        return second
    if second == LOSSLESS:
        return first
    if first.zeta is not None and second.zeta is not None:
        return unbiased(first.zeta * second.zeta)
    if first.projects and first.delta is not None:  # the second's error is where entries were kept, and nowhere else
        least = None if second.least is None else second.least / first.delta
        delta = None if second.delta is None else first.delta * second.delta
        return Bounds(None, delta, least, second.most, second.projects)
    if first.zeta is not None and second.delta is not None:
        return _rounded(first.zeta, _error(second.delta))
    again = UNKNOWN if first.delta is None else _again(_error(first.delta), second)
    if first.least is not None and second.zeta is not None:  # which makes up for no more than the second adds
        return again._replace(least=first.least, most=first.most * second.zeta)
    return again


def _error(delta: float) -> float:
    """What comes back is as far away as this, of the norm."""
    return sqrt(1 - 1 / delta)


def _within(square: float) -> Bounds:
    return contraction(1 / (1 - square)) if square < 1 else UNKNOWN


def _rounded(zeta: float, error: float) -> Bounds:
    """Of an unbiased codec, and one after it that is this far off."""
    delta = _within((sqrt(zeta - 1) + error * sqrt(zeta)) ** 2).delta
    least = 1 - error * sqrt(zeta)
    return Bounds(None, delta, least, (1 + error) ** 2 * zeta / least) if least > 0 else Bounds(delta=delta)


def _again(error: float, second: Bounds) -> Bounds:
    """Of a codec that is this far off, and another one after it."""
    if second.zeta is not None:  # its own error is at right angles to the first's, on average
        return _within(error**2 + (second.zeta - 1) * (1 + error) ** 2)
    if second.delta is not None and second.delta < inf:
        return _within((error + _error(second.delta) * (1 + error)) ** 2)
    return UNKNOWN


class Bounded:
    """What codecs tell of their error."""

    def bounds(self, size: int) -> Bounds:
        """For tensors of so many entries, one at least."""
        return UNKNOWN

    def entries(self, size: int) -> int:
        """How many the signal has, at most, that it leaves of so many."""
        return size

    def zeta(self, size: int) -> float | None:
        """What the mean square grows by, at most, of a codec that is right on average; None if it is not."""
        return self.bounds(size).zeta

    def delta(self, size: int) -> float | None:
        """1 - 1/delta of the squares are lost, at most and on average; None if there is no such bound."""
        return self.bounds(size).delta
