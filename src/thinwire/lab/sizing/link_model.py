"""The time on a link, computed from its bytes instead of measured."""

from collections.abc import Sequence


def link_seconds(carried: Sequence[float], busiest: float, rate: float) -> list[float]:
    """Seconds on a link of `rate` bits/s from the start to each of several steps, the last of which ends the run.

    `carried` are the bytes of one rank's link up to these steps. The busiest link, with `busiest` bytes in total,
    determines the time; its bytes are assumed to grow in proportion to `carried`.
    """
    scale = busiest / carried[-1] if carried[-1] else 1.0
    return [nbytes * scale * 8 / rate for nbytes in carried]
