"""The entries of largest magnitude in a vector; of equal ones, the first.

A sample gives an estimate of the smallest selected size. One pass collects the entries of at least that size (the
candidates, a few more than needed), and the exact ones are selected from them. If that fails because very many entries
have just the estimated size, one more pass counts them. If that fails too, sizes are counted by their bits, which
always takes two passes. A size is the bits of a float without its sign, ordered as magnitudes are.
"""

from math import sqrt
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.lazy import DeferredDifference
from .compiled import loops_for, vector
from .layout import LOW_BITS, WORD
from .scratch import scratch
from .sparse_tensor import SparseTensor
from .threads import spread, stretches

SAMPLE = 2**15  # entries
FAR = 2**22  # entries: far more than fit into a cache
MANY = 1 / 8  # of all entries: from this ratio on, a sample saves nothing
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Candidates(NamedTuple):
    """Positions and bits of a superset of the selected entries."""

    where: NDArray[np.int64]
    bits: NDArray[np.int32]


def largest(x: Tensor, count: int) -> SparseTensor:
    flat = x.contiguous().view(-1)
    loops = loops_for(flat)
    if loops is None or count == 0:
        where = _plain(flat, count)
        return SparseTensor(flat.index_select(0, where), where, x)
    return SparseTensor(*_exact(loops, flat, count, _find_candidates(loops, flat, None, 1.0, flat, count)), x)


def largest_of_sum(x: Tensor, rest: DeferredDifference, decay: float, out: Tensor, count: int) -> SparseTensor:
    """Write x + decay * rest into `out`, and find its largest entries, in one pass."""
    flat, total = x.contiguous().view(-1), out.view(-1)
    loops = loops_for(flat, rest.total, out)
    if loops is None or rest.sent is not None or not _use_sample(flat.numel(), count):
        return largest(rest.added_to(x, decay, out), count)
    candidates = _find_candidates(loops, flat, rest.total.view(-1), decay, total, count)
    return SparseTensor(*_exact(loops, total, count, candidates), out)


def _plain(flat: Tensor, count: int) -> Tensor:
    if count == 0:
        return torch.empty(0, dtype=torch.int64, device=flat.device)
    # The bits are ordered as the magnitudes are, and NaN is the largest.
    sizes = flat.abs().view(INTEGERS[flat.element_size()])
    least = sizes.topk(count, sorted=False).values.min()
    larger, equal = sizes > least, sizes == least
    first = equal & (equal.cumsum(0) <= count - larger.sum())
    return (larger | first).nonzero().squeeze(1)


def _use_sample(size: int, count: int) -> bool:
    """Whether a sample can estimate the smallest selected size."""
    return size >= 2 * SAMPLE and 0 < count < MANY * size


def _find_candidates(
    loops: ModuleType, x: Tensor, rest: Tensor | None, decay: float, out: Tensor, count: int
) -> Candidates | np.int32 | None:
    """The candidates: all entries from the estimated size on, or all nonzero entries if there are fewer than `count`.

    Returns the estimated size instead if it gave too few or too many; None if no sample is used.
    """
    size = x.numel()
    if not _use_sample(size, count):
        return None
    xs, outs, factor = vector(x), vector(out), np.float32(decay if rest is not None else 0)
    rests = xs if rest is None else vector(rest)
    sample = np.empty(SAMPLE, np.float32)
    loops.sample_sum(xs, rests, factor, sample)
    # A margin of four standard deviations, so that there are hardly ever too few candidates.
    usual = count * SAMPLE / size
    down = SAMPLE - int(usual + 4 * sqrt(usual) + 8)
    # Zeros need not be collected: the positions of all others give theirs.
    least = np.int32(max(1, np.partition(_without_sign(sample.view(np.int32)), down)[down]))
    cut = stretches(size, 64)
    room = min(cut[0][1], 2 * (SAMPLE - down) * size // SAMPLE) + WORD
    number = {start: i for i, (start, _) in enumerate(cut)}
    where, bits = scratch("where", len(cut) * room, np.int64), scratch("bits", len(cut) * room, np.int32)
    far = size >= FAR and out.data_ptr() % 64 == 0

    def collect(start: int, stop: int) -> int:
        first = number[start] * room
        part, arguments = slice(start, stop), (least, start, where[first : first + room], bits[first : first + room])
        if rest is None:
            return int(loops.filter_from(outs[part], *arguments))
        return int(loops.add_and_filter(xs[part], rests[part], factor, outs[part], far, *arguments))

    counts = spread(collect, size, 64)
    if min(counts) < 0 or (sum(counts) < count and least > 1):
        return least
    end = 0
    for i, found in enumerate(counts):  # close the gaps between the stretches
        where[end : end + found] = where[i * room : i * room + found]
        bits[end : end + found] = bits[i * room : i * room + found]
        end += found
    return Candidates(where[:end], bits[:end])


def _exact(
    loops: ModuleType, flat: Tensor, count: int, candidates: Candidates | np.int32 | None
) -> tuple[Tensor, Tensor]:
    """The values and positions of the largest entries, in the order of positions."""
    where = torch.empty(count, dtype=torch.int64)
    if isinstance(candidates, Candidates) and len(candidates.where) >= count:
        values = torch.empty(count)
        least, equal = _least_by_order(_without_sign(candidates.bits), count)
        loops.keep_selected(*candidates, least, equal, vector(where), vector(values).view(np.int32))
        return values, where
    numbers = vector(flat)
    bits = numbers.view(np.int32)
    if isinstance(candidates, Candidates):  # zeros are selected, too, after all others
        least, equal = np.int32(0), count - len(candidates.where)
    elif len(bits) < 2 * SAMPLE:
        least, equal = _least_by_order(_without_sign(bits), count)
    else:
        least, equal = _least_if_equal(loops, bits, count, candidates) or _least_by_bits(loops, bits, count)
    loops.keep(numbers, bits, least, equal, vector(where))
    return flat.index_select(0, where), where


def _least_by_order(sizes: NDArray[np.int32], count: int) -> tuple[np.int32, int]:
    """The smallest selected size, and how many entries of just that size are selected."""
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    return least, count - int(np.count_nonzero(sizes > least))


def _least_if_equal(
    loops: ModuleType, bits: NDArray[np.int32], count: int, least: np.int32 | None
) -> tuple[np.int32, int] | None:
    """The same, if `least` is the smallest selected size; None if not."""
    if least is None:
        return None
    larger, equal = np.sum(spread(lambda i, end: loops.count_from(bits[i:end], least), len(bits)), 0)
    return (least, count - int(larger)) if larger < count <= larger + equal else None


def _least_by_bits(loops: ModuleType, bits: NDArray[np.int32], count: int) -> tuple[np.int32, int]:
    def count_high(start: int, stop: int) -> NDArray[np.int64]:
        counts = np.zeros((4, 2 ** (31 - LOW_BITS)), np.int64)
        loops.count_high(bits[start:stop], counts)
        return counts

    high, missing = _first_from_above(np.concatenate(spread(count_high, len(bits))).sum(0), count)

    def count_low(start: int, stop: int) -> NDArray[np.int64]:
        counts = np.zeros((4, 2**LOW_BITS), np.int64)
        loops.count_low(bits[start:stop], high, counts)
        return counts

    low, equal = _first_from_above(np.concatenate(spread(count_low, len(bits))).sum(0), missing)
    return np.int32(high << LOW_BITS | low), equal


def _first_from_above(counts: NDArray[np.int64], wanted: int) -> tuple[int, int]:
    """The largest value from which on at least `wanted` are counted, and how many of just that value are needed."""
    reached = np.cumsum(counts[::-1])
    down = int(np.searchsorted(reached, wanted))
    return len(counts) - 1 - down, wanted - int(reached[down] - counts[::-1][down])


def _without_sign(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    return bits & np.int32(0x7FFFFFFF)
