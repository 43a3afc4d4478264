"""The largest entries of a vector by size; of equal ones, the first.

A sample tells about how large an entry has to be. One pass notes those that are, a few more than are wanted, and the
exact ones are found among them. Where that fails because a great many are just as large as the sample says, one more
pass counts them. If that fails too, sizes are counted by their bits, which takes two passes whatever they are.
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
FAR = 2**22  # entries: far more than a cache holds
MANY = 1 / 8  # of all: to find so many, or more, a sample saves nothing
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Noted(NamedTuple):
    """Where entries are at least as large as those wanted, and their bits."""

    where: NDArray[np.int64]
    bits: NDArray[np.int32]


def largest(x: Tensor, count: int) -> SparseTensor:
    flat = x.contiguous().view(-1)
    loops = loops_for(flat)
    if loops is None or count == 0:
        where = _plain(flat, count)
        return SparseTensor(flat.index_select(0, where), where, x)
    return SparseTensor(*_exact(loops, flat, count, _noted(loops, flat, None, 1.0, flat, count)), x)


def largest_of_sum(x: Tensor, rest: DeferredDifference, decay: float, out: Tensor, count: int) -> SparseTensor:
    """Write x + decay * rest into `out`, and find its largest entries, in one pass."""
    flat, total = x.contiguous().view(-1), out.view(-1)
    loops = loops_for(flat, rest.total, out)
    if loops is None or rest.sent is not None or not _sampled(flat.numel(), count):
        return largest(rest.added_to(x, decay, out), count)
    noted = _noted(loops, flat, rest.total.view(-1), decay, total, count)
    return SparseTensor(*_exact(loops, total, count, noted), out)


def _plain(flat: Tensor, count: int) -> Tensor:
    if count == 0:
        return torch.empty(0, dtype=torch.int64, device=flat.device)
    # The bits of sizes are ordered as the sizes are, and NaN is the largest.
    sizes = flat.abs().view(INTEGERS[flat.element_size()])
    least = sizes.topk(count, sorted=False).values.min()
    larger, equal = sizes > least, sizes == least
    first = equal & (equal.cumsum(0) <= count - larger.sum())
    return (larger | first).nonzero().squeeze(1)


def _sampled(size: int, count: int) -> bool:
    """Whether a sample can tell how large an entry has to be."""
    return size >= 2 * SAMPLE and 0 < count < MANY * size


def _noted(
    loops: ModuleType, x: Tensor, rest: Tensor | None, decay: float, out: Tensor, count: int
) -> Noted | np.int32 | None:
    """A few more entries than are wanted, all of them at least as large, or all that are not zero if there are fewer.

    Where the sample misled, the size that it told of; None without a sample.
    """
    size = x.numel()
    if not _sampled(size, count):
        return None
    xs, outs, factor = vector(x), vector(out), np.float32(decay if rest is not None else 0)
    rests = xs if rest is None else vector(rest)
    sample = np.empty(SAMPLE, np.float32)
    loops.sample_sum(xs, rests, factor, sample)
    # So far down that too few would be an accident of four standard deviations, and then they are counted.
    usual = count * SAMPLE / size
    down = SAMPLE - int(usual + 4 * sqrt(usual) + 8)
    # Zeros need not be noted: it is known where they are, when all others are.
    least = np.int32(max(1, np.partition(_without_sign(sample.view(np.int32)), down)[down]))
    cut = stretches(size, 64)
    room = min(cut[0][1], 2 * (SAMPLE - down) * size // SAMPLE) + WORD
    number = {start: i for i, (start, _) in enumerate(cut)}
    where, bits = scratch("where", len(cut) * room, np.int64), scratch("bits", len(cut) * room, np.int32)
    far = size >= FAR and out.data_ptr() % 64 == 0

    def note(start: int, stop: int) -> int:
        first = number[start] * room
        part, given = slice(start, stop), (least, start, where[first : first + room], bits[first : first + room])
        if rest is None:
            return int(loops.filter_from(outs[part], *given))
        return int(loops.add_and_filter(xs[part], rests[part], factor, outs[part], far, *given))

    counts = spread(note, size, 64)
    if min(counts) < 0 or (sum(counts) < count and least > 1):
        return least
    end = 0
    for i, there in enumerate(counts):  # close the gaps between the stretches
        where[end : end + there] = where[i * room : i * room + there]
        bits[end : end + there] = bits[i * room : i * room + there]
        end += there
    return Noted(where[:end], bits[:end])


def _exact(loops: ModuleType, flat: Tensor, count: int, noted: Noted | np.int32 | None) -> tuple[Tensor, Tensor]:
    """The largest entries, and where they are, in increasing order."""
    where = torch.empty(count, dtype=torch.int64)
    if isinstance(noted, Noted) and len(noted.where) >= count:
        values = torch.empty(count)
        least, equal = _least_by_order(_without_sign(noted.bits), count)
        loops.keep_among(*noted, least, equal, vector(where), vector(values).view(np.int32))
        return values, where
    numbers = vector(flat)
    bits = numbers.view(np.int32)
    if isinstance(noted, Noted):  # zeros are among the largest, after all others
        least, equal = np.int32(0), count - len(noted.where)
    elif len(bits) < 2 * SAMPLE:
        least, equal = _least_by_order(_without_sign(bits), count)
    else:
        least, equal = _least_if_equal(loops, bits, count, noted) or _least_by_bits(loops, bits, count)
    loops.keep(numbers, bits, least, equal, vector(where))
    return flat.index_select(0, where), where


def _least_by_order(sizes: NDArray[np.int32], count: int) -> tuple[np.int32, int]:
    """How large the smallest of the largest is, and how many of them are just as large."""
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    return least, count - int(np.count_nonzero(sizes > least))


def _least_if_equal(
    loops: ModuleType, bits: NDArray[np.int32], count: int, least: np.int32 | None
) -> tuple[np.int32, int] | None:
    """The same, if the smallest of the largest is of this size."""
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
    """The value at which, from the highest down, there are as many as wanted; and how many are missing above it."""
    reached = np.cumsum(counts[::-1])
    down = int(np.searchsorted(reached, wanted))
    return len(counts) - 1 - down, wanted - int(reached[down] - counts[::-1][down])


def _without_sign(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    return bits & np.int32(0x7FFFFFFF)
