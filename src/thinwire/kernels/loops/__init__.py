"""Loops that torch has no single operation for, compiled by numba.

Each has a torch or numpy twin in the module of the same name one level up.

All are serial, as numba's own threads cannot be started from several threads; threads.spread divides long loops. Arrays
are contiguous. Loops check nothing. Loops that decode neither read nor write beyond their arrays, whatever the bytes;
loops that take positions need increasing ones, whose first and last the callers check.

A file is imported when one of its loops is first used, as importing all takes time. One is imported here, so that a
missing numba or cache folder shows as an error of this import.
"""

from importlib import import_module
from typing import Any

from . import look_up as look_up

LOOPS = {
    "bins": ("add_and_select", "signed_values"),
    "bitmaps": ("count_bits", "set_positions"),
    "bits": ("pack",),
    "frequencies": ("count_symbols",),
    "gaps": ("gaps_of", "join_gaps", "mark_gaps"),
    "huffman": ("read_huffman12", "read_huffman16", "write_huffman12", "write_huffman16"),
    "look_up": ("looked_up", "ranked"),
    "low_rank_product": ("add_rest", "dots", "product", "renewed", "sums"),
    "norms": ("largest", "squares"),
    "pieces": ("sum_pieces",),
    "positions": ("join_positions", "mark"),
    "quantization": ("quantize", "scales"),
    "quantized_tensor": (
        "add_levels",
        "add_rest_of_levels",
        "add_rest_of_uniform",
        "add_uniform",
        "write_levels",
        "write_uniform",
    ),
    "rans": ("read_rans14", "read_rans16", "write_rans14", "write_rans16"),
    "selection": (
        "add_and_filter",
        "count_from",
        "count_high",
        "count_low",
        "filter_from",
        "keep",
        "keep_selected",
        "sample_sum",
    ),
    "sign_bits": ("magnitudes", "signs", "ternary"),
    "sparse_tensor": ("add_to",),
}
FILES = {loop: file for file, loops in LOOPS.items() for loop in loops}


def __getattr__(name: str) -> Any:
    if name not in FILES:
        raise AttributeError(f"there is no loop {name!r}")
    globals()[name] = loop = getattr(import_module(f".{FILES[name]}", __name__), name)
    return loop
