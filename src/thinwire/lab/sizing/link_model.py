"""The time on a link, computed from the bytes that it carries instead of measured."""

from collections.abc import Sequence


def link_seconds(carried: Sequence[float], busiest: float, rate: float) -> list[float]:
    """Seconds on a link of `rate` bits/s, up to each of several steps, the last one included.

    `carried` are the bytes that one rank's link has carried up to these steps. The rank whose link carries the most, in
    all `busiest` bytes, sets the time; its bytes grow in proportion to these.
    """
    scale = busiest / carried[-1] if carried[-1] else 1.0
    return [nbytes * scale * 8 / rate for nbytes in carried]
