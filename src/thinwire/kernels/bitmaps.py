"""The positions of set bits in a bitmap that is packed as by `bits.pack`."""

from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from .bits import unpack
from .compiled import loops_for, vector
from .threads import spread

LANES = 8  # consecutive ranges of a bitmap; lane i is bit i of all bytes

Result = TypeVar("Result")


def count_bits(bitmap: Tensor, size: int) -> list[int]:
    """The number of set bits in each lane, of the first `size` bits."""
    loops = loops_for(bitmap, dtype=torch.uint8)
    if loops is None:
        return [int(lane.sum()) for lane in torch.split(unpack(bitmap, size, 1), max(1, bitmap.numel()))]
    counts = torch.empty(LANES, dtype=torch.int64)
    loops.count_bits(vector(bitmap), size, vector(counts))
    return counts.tolist()


def set_positions(
    bitmap: Tensor, size: int, counts: list[int], then: Callable[[int, Tensor], Result]
) -> tuple[Tensor, list[Result]]:
    """The positions of the set bits among the first `size`, given their number per lane; and the results of `then`.

    Calls `then` on each stretch of positions while it is in the cache, with the number of positions before it; `then`
    may change the stretch in place.
    """
    loops = loops_for(bitmap, dtype=torch.uint8)
    if loops is None:
        positions = unpack(bitmap, size, 1).nonzero().squeeze(1)
        return positions, [then(0, positions)]
    before = [0, *accumulate(counts)]
    positions = torch.empty(before[-1], dtype=torch.int64)
    rows = max(1, bitmap.numel())

    def stretch(start: int, stop: int) -> Result:
        first = before[start // rows]
        some = positions[first : before[-(-stop // rows)]]
        loops.set_positions(vector(bitmap), start, stop, vector(some))
        return then(first, some)

    return positions, spread(stretch, size, rows)
