"""AdaComp's selection: in each bin, the entries that another gradient like this one would make the largest."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from .compiled import loops_for, vector
from .layout import WORD
from .scratch import scratch
from .sparse_tensor import SparseTensor
from .threads import spread, stretches

USUAL = 8  # at most 1 in 8 entries is selected, except in the first steps


def add_and_select(x: Tensor, rest: Tensor, out: Tensor, bin_size: int, factor: float) -> Tensor | SparseTensor:
    """Write x + rest into `out`; returns the selected entries, each as its sign times one common magnitude.

    An entry is selected if its magnitude, with x counted `factor` times, reaches the largest magnitude of its bin. The
    common magnitude is the mean of the bins' largest magnitudes. If an entry is not finite, the result is NaN.
    """
    x = x.contiguous()
    loops = loops_for(x, rest, out)
    if loops is None or x.numel() == 0:
        return _plain(x, rest, out, bin_size, factor)
    xs, rests, outs = map(vector, (x, rest, out))
    largest = torch.empty(-(-x.numel() // bin_size))
    sizes = vector(largest).view(np.int32)

    cut = stretches(x.numel(), bin_size)
    room = cut[0][1] // USUAL
    number = {start: i for i, (start, _) in enumerate(cut)}
    marked = scratch("marked", len(cut) * room, np.int64)

    def select(start: int, stop: int) -> NDArray[np.int64]:
        first = number[start] * room
        part, of_bins = slice(start, stop), slice(start // bin_size, -(-stop // bin_size))
        arguments = xs[part], rests[part], outs[part], bin_size, np.float32(factor - 1), start, sizes[of_bins]
        where = marked[first : first + room]
        count = loops.add_and_select(*arguments, where)
        if count < 0:
            where = np.empty(stop - start + WORD, np.int64)
            count = loops.add_and_select(*arguments, where)
        return where[:count]

    selected = spread(select, x.numel(), bin_size)
    size = _mean(largest)
    if not size.isfinite():
        return torch.full_like(out, torch.nan)
    ends = np.cumsum([0, *map(len, selected)] if size > 0 else [0])
    where, values = torch.empty(int(ends[-1]), dtype=torch.int64), torch.empty(int(ends[-1]))

    def write(start: int, stop: int) -> None:
        i = number[start]
        part = slice(ends[i], ends[i + 1])
        loops.signed_values(selected[i], np.float32(size), vector(where[part]), vector(values[part]))

    if len(values):
        spread(write, x.numel(), bin_size)
    return SparseTensor(values, where, out)


def _plain(x: Tensor, rest: Tensor, out: Tensor, bin_size: int, factor: float) -> Tensor | SparseTensor:
    flat, again = torch.add(x, rest, out=out).view(-1), x.flatten().to(out.dtype)
    if flat.numel() == 0:
        return SparseTensor(flat, torch.empty(0, dtype=torch.int64, device=flat.device), out)
    bins = -(-flat.numel() // bin_size)
    largest = _in_bins(flat.abs(), bins, bin_size).amax(1)
    size = _mean(largest)
    if not size.isfinite():
        return torch.full_like(out, torch.nan)
    reach = flat + again * (
        factor - 1
    )  # two operations: torch.add(alpha=...) would fuse them for some entries and round those once
    large = (_in_bins(reach.abs(), bins, bin_size) >= largest[:, None]).view(-1)[: flat.numel()]
    # From a bin of zeros nothing is sent, although every entry reaches the largest magnitude.
    marks = flat.sign() * large * size
    where = marks.nonzero().squeeze(1)
    return SparseTensor(marks[where], where, out)


def _mean(largest: Tensor) -> Tensor:
    # A sequential sum in 64 bits, so that loops and torch give the same bits.
    return (largest.double().cumsum(0)[-1] / len(largest)).to(largest.dtype)


def _in_bins(flat: Tensor, bins: int, bin_size: int) -> Tensor:
    return pad(flat, (0, bins * bin_size - flat.numel())).view(bins, bin_size)
