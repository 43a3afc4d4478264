"""The loops that torch has no single operation for, compiled by numba; each has a plain twin in a module above.

All are serial, as numba's own threads do not bear being started from several; threads.spread cuts the long ones. Arrays
are contiguous. Nothing is checked for the loops. Those that decode neither read nor write beyond their arrays, whatever
is in them; those that take places take increasing ones, of which the callers check the ends.

A file is imported when a loop of it is first asked for, as to read all of them takes time. One is at once, so that who
has no numba, or no place for what it compiles, is told so here.
"""

from importlib import import_module
from typing import Any

from . import look_up as look_up

LOOPS = {
    "bins": ("add_and_reach", "told"),
    "quantized_tensor": (
        "add_coded",
        "add_levels",
        "add_rest_of_coded",
        "add_rest_of_levels",
        "write_coded",
        "write_levels",
    ),
    "huffman": ("read_huffman12", "read_huffman16", "write_huffman12", "write_huffman16"),
    "indices": ("counted", "gaps_of", "join_gaps", "join_positions", "mark", "mark_gaps", "marked", "pack"),
    "look_up": ("looked_up", "ranked"),
    "low_rank_product": ("add_rest", "dots", "product", "renewed", "sums"),
    "norms": ("peaks", "squares"),
    "quantization": ("quantize", "scales"),
    "rans": ("read_rans14", "read_rans16", "write_rans14", "write_rans16"),
    "selection": (
        "add_and_filter",
        "add_at",
        "count_from",
        "count_high",
        "count_low",
        "filter_from",
        "keep",
        "keep_among",
        "sample_sum",
    ),
    "sign_bits": ("magnitudes", "signs", "thirds"),
    "frequencies": ("add_up_pieces", "count_symbols"),
}
FILES = {loop: file for file, loops in LOOPS.items() for loop in loops}


def __getattr__(name: str) -> Any:
    if name not in FILES:
        raise AttributeError(f"there is no loop {name!r}")
    globals()[name] = loop = getattr(import_module(f".{FILES[name]}", __name__), name)
    return loop
