"""The loops that torch has no single operation for, compiled by numba; each has a plain twin in a module above.

All are serial, as numba's own threads do not bear being started from several; threads.spread cuts the long ones. Arrays
are contiguous. Nothing is checked for the loops: they neither read nor write beyond their arrays, whatever is in them.
"""

from .indices import counted, gaps_of, join_gaps, join_positions, mark, mark_gaps, marked, pack
from .low_rank import add_rest, dots, product, renewed, sums

__all__ = [
    "add_rest",
    "counted",
    "dots",
    "gaps_of",
    "join_gaps",
    "join_positions",
    "mark",
    "mark_gaps",
    "marked",
    "pack",
    "product",
    "renewed",
    "sums",
]
