"""A row of symbols as a block of bytes: which model and coder, the model's parameters, and the code; or as they are.

Where no model is asked for, a row whose pieces differ in how common their symbols are is told as several: which piece
is of which group, and a block for each group.
"""

from typing import Any, NamedTuple

import numpy as np

from ..core import PayloadError
from ..kernels.frequencies import count_symbols, scaled
from ..kernels.pieces import gathered, scattered
from .clusters import MOST, PIECE, groups, least_bits
from .coders import Bytes, Coder, Huffman, Rans, Symbols
from .gen_norm import GenNorm
from .histogram import Histogram
from .model import Integers, Model
from .parameters import TOLD

STORED, GROUPED = 0, 1
CODERS: dict[int, Coder] = {coder.code: coder for coder in (Huffman(), Rans())}
MODELS: dict[int, type[Model]] = {model.code: model for model in (GenNorm, Histogram)}
PER_KIND = 0.72  # bits by which symbols that occur by chance seem to take too few, for each kind of them
MOST_TOLD = 2**18  # bytes of parameters: more than a table of the largest alphabet takes
SMALLEST = 16  # bytes, that parameters alone would take
FLAT = 0.995  # of what symbols take as they are: with less to gain, nothing is tried
SLIGHT = 0.001  # of the bytes: no law is looked for where a table takes less, as it could save no more
NEAR = 0.03  # of the bytes by which a law from moments may be worse than a table, and yet be worth a better fit
WORTH = 0.02  # of the bytes, that rANS must save to be taken where nothing is said, as it takes longer
WIDEST = 256  # alphabets up to which a law is fitted by likelihood where nothing is said
LONG = 2**12  # bytes of a row from which on it is: of fewer, it saves a dozen or so, for milliseconds


class Plan(NamedTuple):
    """How symbols could be written, and in how many bytes, about."""

    nbytes: float
    model: Model
    coder: Coder
    told: bytes
    frequencies: Integers


def squeeze(symbols: Symbols, model: Model | None, coder: Coder | None) -> bytes:
    """The block that says these symbols; never longer than they are by more than a byte."""
    if symbols.nbytes <= SMALLEST:
        return _stored(symbols)
    step = _step(len(symbols), model)
    counts = count_symbols(
        symbols if step == 1 else np.ascontiguousarray(symbols[::step]), _alphabet(symbols.dtype.type)
    )
    labels = groups(symbols, counts) if model is None and symbols.itemsize == 1 else None
    if labels is None:
        return _row(symbols, counts, step, model, coder)
    number = int(labels.max()) + 1
    rows = [labels, *(gathered(symbols, PIECE, labels == group) for group in range(number))]
    blocks = [_row(row, count_symbols(row, len(counts)), 1, Histogram(), coder) for row in rows]
    block = bytes([GROUPED, number]) + b"".join(blocks)
    return block if len(block) < symbols.nbytes else _stored(symbols)


def _stored(symbols: Symbols) -> bytes:
    return bytes([STORED]) + symbols.tobytes()


def _row(symbols: Symbols, counts: Integers, step: int, model: Model | None, coder: Coder | None) -> bytes:
    """The block for symbols that have one model; they, or each so many-th of them, are there so often."""
    plan, stored = _plan(counts, step, symbols.nbytes, model, coder), _stored(symbols)
    if plan is None or plan.nbytes >= symbols.nbytes:
        return stored
    head = bytes([plan.model.code << 4 | plan.coder.code])
    try:
        block = head + plan.told + plan.coder.encode(symbols, plan.frequencies).tobytes()
    except ValueError:
        if step == 1:
            raise
        return stored  # there is a symbol that the sample did not have, and that no law tells of
    return block if len(block) < len(stored) else stored


def expand(block: Bytes, count: int, dtype: type[Any]) -> tuple[Symbols, int]:
    """So many symbols, and how many bytes of the block they took; or a PayloadError."""
    if not len(block):
        raise PayloadError("a squeezed part is cut off")
    head = int(block[0])
    if head == GROUPED:
        return _expand_groups(block, count, dtype)
    if head == STORED:
        size = count * np.dtype(dtype).itemsize
        if len(block) < 1 + size:
            raise PayloadError(f"{len(block) - 1} bytes cannot be {count} symbols as they are")
        return np.frombuffer(block[1 : 1 + size].tobytes(), dtype), 1 + size
    model, coder = MODELS.get(head >> 4), CODERS.get(head & 15)
    if model is None or coder is None:
        raise PayloadError(f"a squeezed part has the unknown head {head:#04x}")
    weights, used = model.weights(block[1 : 1 + MOST_TOLD].tobytes(), _alphabet(dtype))
    symbols, more = coder.decode(block[1 + used :], count, scaled(weights), dtype)
    return symbols, 1 + used + more


def _expand_groups(block: Bytes, count: int, dtype: type[Any]) -> tuple[Symbols, int]:
    pieces = -(-count // PIECE)
    if len(block) < 3 or not 2 <= block[1] <= MOST or block[2] == GROUPED or np.dtype(dtype).itemsize > 1:
        raise PayloadError("a squeezed part has no such groups")
    labels, used = expand(block[2:], pieces, np.uint8)
    used += 2
    if pieces and labels.max() >= block[1]:
        raise PayloadError(f"a piece is of group {labels.max()}, where there are {block[1]}")
    symbols = np.empty(count, dtype)
    for group in range(int(block[1])):
        if used >= len(block) or block[used] == GROUPED:
            raise PayloadError("a group of symbols is cut off, or cut again")
        which = labels == group
        size = int(which.sum()) * PIECE - (pieces * PIECE - count if pieces and which[-1] else 0)
        row, more = expand(block[used:], size, dtype)
        scattered(row, PIECE, which, symbols)
        used += more
    return symbols, used


def _plan(counts: Integers, step: int, nbytes: int, model: Model | None, coder: Coder | None) -> Plan | None:
    least = least_bits(counts)
    if step * (least + PER_KIND * np.count_nonzero(counts)) >= 8 * nbytes * FLAT:
        return None
    plans = _plans(model, counts, coder) if model else _plans(Histogram(), counts, coder)
    if not model and _law_may_be_shorter(plans, least):
        by_law = _plans(GenNorm("moments"), counts, coder)
        well = nbytes >= LONG and len(counts) <= WIDEST
        if well and by_law and _least(by_law).nbytes < _least(plans).nbytes * (1 + NEAR):
            by_law += _plans(GenNorm(), counts, coder)  # which may be the best
        plans += by_law
    if not plans:
        return None
    best, fast = _least(plans), [plan for plan in plans if isinstance(plan.coder, Huffman)]
    if fast and _least(fast).nbytes * (1 - WORTH) <= best.nbytes:
        best = _least(fast)
    return best._replace(nbytes=step * best.nbytes)


def _law_may_be_shorter(plans: list[Plan], least: float) -> bool:
    """Whether a table takes so much more than its symbols must that a law, which has none, could be shorter."""
    if not plans:
        return True
    longest = max(plan.nbytes for plan in plans)  # which may be taken, where others are hardly shorter
    return len(plans[0].told) > SLIGHT * _least(plans).nbytes and 1 + TOLD.size + least / 8 < longest


def _least(plans: list[Plan]) -> Plan:
    return min(plans, key=lambda plan: plan.nbytes)


def _plans(model: Model, counts: Integers, coder: Coder | None) -> list[Plan]:
    told = model.told(counts)
    if told is None:
        return []
    parameters, frequencies = told[0], scaled(told[1])
    return [
        Plan(1 + len(parameters) + one.bits(counts, frequencies) / 8, model, one, parameters, frequencies)
        for one in ([coder] if coder else CODERS.values())
    ]


def _step(count: int, model: Model | None) -> int:
    """At what distance symbols are looked at; odd, as what is packed repeats at even ones."""
    sample = model.sample if isinstance(model, GenNorm) else None
    return 1 if sample is None else max(1, count // sample) | 1


def _alphabet(dtype: type[Any]) -> int:
    return int(2 ** (8 * np.dtype(dtype).itemsize))
