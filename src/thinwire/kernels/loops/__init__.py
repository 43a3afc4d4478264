"""The loops that torch has no single operation for, compiled by numba; each has a plain twin in a module above.

All are serial, as numba's own threads do not bear being started from several; threads.spread cuts the long ones. Arrays
are contiguous. Nothing is checked for the loops: they neither read nor write beyond their arrays, whatever is in them.
"""

from .indices import counted, gaps_of, join_gaps, join_positions, mark, mark_gaps, marked, pack
from .low_rank import add_rest, dots, product, renewed, sums
from .selection import (
    add_and_filter,
    add_and_reach,
    add_at,
    count_high,
    count_low,
    filter_from,
    keep,
    keep_among,
    sample_sum,
    told,
)

__all__ = [
    "add_and_filter",
    "add_and_reach",
    "add_at",
    "add_rest",
    "count_high",
    "count_low",
    "counted",
    "dots",
    "filter_from",
    "gaps_of",
    "join_gaps",
    "join_positions",
    "keep",
    "keep_among",
    "mark",
    "mark_gaps",
    "marked",
    "pack",
    "product",
    "renewed",
    "sample_sum",
    "sums",
    "told",
]
