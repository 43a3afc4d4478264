"""The loops that torch has no single operation for, compiled by numba; each has a plain twin in a module above.

All are serial, as numba's own threads do not bear being started from several; threads.spread cuts the long ones. Arrays
are contiguous. Nothing is checked for the loops. Those that decode neither read nor write beyond their arrays, whatever
is in them; those that take places take increasing ones, of which the callers check the ends.
"""

from .bins import add_and_reach, told
from .coded import add_coded, add_rest_of_coded, write_coded
from .huffman import read_huffman12, read_huffman16, write_huffman12, write_huffman16
from .indices import counted, gaps_of, join_gaps, join_positions, mark, mark_gaps, marked, pack
from .look_up import looked_up, ranked
from .low_rank import add_rest, dots, product, renewed, sums
from .quantise import quantise, scales
from .rans import read_rans14, read_rans16, write_rans14, write_rans16
from .selection import (
    add_and_filter,
    add_at,
    count_from,
    count_high,
    count_low,
    filter_from,
    keep,
    keep_among,
    sample_sum,
)
from .signs import magnitudes, signs, thirds
from .symbols import add_up_pieces, count_symbols

__all__ = [
    "add_and_filter",
    "add_and_reach",
    "add_at",
    "add_coded",
    "add_rest",
    "add_rest_of_coded",
    "add_up_pieces",
    "count_from",
    "count_high",
    "count_low",
    "count_symbols",
    "counted",
    "dots",
    "filter_from",
    "gaps_of",
    "join_gaps",
    "join_positions",
    "keep",
    "keep_among",
    "looked_up",
    "magnitudes",
    "mark",
    "mark_gaps",
    "marked",
    "pack",
    "product",
    "quantise",
    "ranked",
    "read_huffman12",
    "read_huffman16",
    "read_rans14",
    "read_rans16",
    "renewed",
    "sample_sum",
    "scales",
    "signs",
    "sums",
    "thirds",
    "told",
    "write_coded",
    "write_huffman12",
    "write_huffman16",
    "write_rans14",
    "write_rans16",
]
