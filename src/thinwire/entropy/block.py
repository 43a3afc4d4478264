"""A row of symbols as a block of bytes: model and coder, the model's parameters, and the code; or the raw symbols.

If no model is given, a row whose pieces differ in their symbol frequencies is split into groups of pieces: the block
then has the group of each piece, and a block per group.
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
from .parameters import PARAMETERS

STORED, GROUPED = 0, 1
CODERS: dict[int, Coder] = {coder.code: coder for coder in (Huffman(), Rans())}
MODELS: dict[int, type[Model]] = {model.code: model for model in (GenNorm, Histogram)}
PER_KIND = 0.72  # bits per distinct symbol by which the empirical entropy of random symbols is too low
MAX_PARAMETERS = 2**18  # bytes: more than a table of the largest alphabet takes
SMALLEST = 16  # bytes: up to this length, parameters alone would take as much
FLAT = 0.995  # of the raw bytes: if the entropy is above that, nothing is tried
SLIGHT = 0.001  # of the bytes: no distribution is fitted if the table takes less, as that is all it could save
NEAR = 0.03  # of the bytes by which a fit from moments may exceed a table and be worth a fit by likelihood
WORTH = 0.02  # of the bytes that rANS must save to be chosen over Huffman by default, as it is slower
WIDEST = 256  # largest alphabet for which a distribution is fitted by likelihood by default
LONG = 2**12  # least bytes of a row for that: for shorter rows it saves a dozen bytes in milliseconds


class Plan(NamedTuple):
    """A way to encode symbols, and about how many bytes it takes."""

    nbytes: float
    model: Model
    coder: Coder
    parameters: bytes
    frequencies: Integers


def compress(symbols: Symbols, model: Model | None, coder: Coder | None) -> bytes:
    """The block of the symbols; at most one byte longer than they are."""
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
    """The block for symbols with one model; `counts` are of all symbols or of every `step`-th."""
    plan, stored = _plan(counts, step, symbols.nbytes, model, coder), _stored(symbols)
    if plan is None or plan.nbytes >= symbols.nbytes:
        return stored
    head = bytes([plan.model.code << 4 | plan.coder.code])
    try:
        block = head + plan.parameters + plan.coder.encode(symbols, plan.frequencies).tobytes()
    except ValueError:
        if step == 1:
            raise
        return stored  # a symbol that is not in the sample has no frequency
    return block if len(block) < len(stored) else stored


def decompress(block: Bytes, count: int, dtype: type[Any]) -> tuple[Symbols, int]:
    """The `count` symbols, and the number of bytes they took; raises PayloadError."""
    if not len(block):
        raise PayloadError("an entropy-coded block is truncated")
    head = int(block[0])
    if head == GROUPED:
        return _decompress_groups(block, count, dtype)
    if head == STORED:
        size = count * np.dtype(dtype).itemsize
        if len(block) < 1 + size:
            raise PayloadError(f"{len(block) - 1} bytes cannot be {count} raw symbols")
        return np.frombuffer(block[1 : 1 + size].tobytes(), dtype), 1 + size
    model, coder = MODELS.get(head >> 4), CODERS.get(head & 15)
    if model is None or coder is None:
        raise PayloadError(f"an entropy-coded block has the unknown head {head:#04x}")
    weights, used = model.weights(block[1 : 1 + MAX_PARAMETERS].tobytes(), _alphabet(dtype))
    symbols, more = coder.decode(block[1 + used :], count, scaled(weights), dtype)
    return symbols, 1 + used + more


def _decompress_groups(block: Bytes, count: int, dtype: type[Any]) -> tuple[Symbols, int]:
    pieces = -(-count // PIECE)
    if len(block) < 3 or not 2 <= block[1] <= MOST or block[2] == GROUPED or np.dtype(dtype).itemsize > 1:
        raise PayloadError("an entropy-coded block has invalid groups")
    labels, used = decompress(block[2:], pieces, np.uint8)
    used += 2
    if pieces and labels.max() >= block[1]:
        raise PayloadError(f"a piece is of group {labels.max()}, but there are {block[1]} groups")
    symbols = np.empty(count, dtype)
    for group in range(int(block[1])):
        if used >= len(block) or block[used] == GROUPED:
            raise PayloadError("a group of symbols is truncated or has groups itself")
        which = labels == group
        size = int(which.sum()) * PIECE - (pieces * PIECE - count if pieces and which[-1] else 0)
        row, more = decompress(block[used:], size, dtype)
        scattered(row, PIECE, which, symbols)
        used += more
    return symbols, used


def _plan(counts: Integers, step: int, nbytes: int, model: Model | None, coder: Coder | None) -> Plan | None:
    least = least_bits(counts)
    if step * (least + PER_KIND * np.count_nonzero(counts)) >= 8 * nbytes * FLAT:
        return None
    plans = _plans(model, counts, coder) if model else _plans(Histogram(), counts, coder)
    if not model and _distribution_may_be_shorter(plans, least):
        by_distribution = _plans(GenNorm("moments"), counts, coder)
        by_likelihood = nbytes >= LONG and len(counts) <= WIDEST
        if by_likelihood and by_distribution and _least(by_distribution).nbytes < _least(plans).nbytes * (1 + NEAR):
            by_distribution += _plans(GenNorm(), counts, coder)  # the fit from moments may still be the best
        plans += by_distribution
    if not plans:
        return None
    best, fast = _least(plans), [plan for plan in plans if isinstance(plan.coder, Huffman)]
    if fast and _least(fast).nbytes * (1 - WORTH) <= best.nbytes:
        best = _least(fast)
    return best._replace(nbytes=step * best.nbytes)


def _distribution_may_be_shorter(plans: list[Plan], least: float) -> bool:
    """Whether the table is so long that a fitted distribution, which has none, could be shorter in all."""
    if not plans:
        return True
    longest = max(plan.nbytes for plan in plans)  # may be chosen if the others are hardly shorter
    return len(plans[0].parameters) > SLIGHT * _least(plans).nbytes and 1 + PARAMETERS.size + least / 8 < longest


def _least(plans: list[Plan]) -> Plan:
    return min(plans, key=lambda plan: plan.nbytes)


def _plans(model: Model, counts: Integers, coder: Coder | None) -> list[Plan]:
    fit = model.fit_with_weights(counts)
    if fit is None:
        return []
    parameters, frequencies = fit[0], scaled(fit[1])
    return [
        Plan(1 + len(parameters) + each.bits(counts, frequencies) / 8, model, each, parameters, frequencies)
        for each in ([coder] if coder else CODERS.values())
    ]


def _step(count: int, model: Model | None) -> int:
    """The distance between sampled symbols; odd, as packed values repeat at even distances."""
    sample = model.sample if isinstance(model, GenNorm) else None
    return 1 if sample is None else max(1, count // sample) | 1


def _alphabet(dtype: type[Any]) -> int:
    return int(2 ** (8 * np.dtype(dtype).itemsize))
