"""Bits that are set, by their places; the bitmap is packed as `bits.pack` packs it."""

from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from .bits import unpack
from .compiled import loops_for, vector
from .threads import spread

LANES = 8  # stretches of a bitmap, each in one bit of all bytes

Result = TypeVar("Result")


def counted(bitmap: Tensor, size: int) -> list[int]:
    """How many of the first `size` bits are set, lane by lane."""
    loops = loops_for(bitmap, dtype=torch.uint8)
    if loops is None:
        return [int(lane.sum()) for lane in torch.split(unpack(bitmap, size, 1), max(1, bitmap.numel()))]
    counts = torch.empty(LANES, dtype=torch.int64)
    loops.counted(vector(bitmap), size, vector(counts))
    return counts.tolist()


def marked(
    bitmap: Tensor, size: int, counts: list[int], then: Callable[[int, Tensor], Result]
) -> tuple[Tensor, list[Result]]:
    """Which of the first `size` bits are set, where that many are in each lane; and what comes of stretches of it.

    Each stretch is handed on as soon as it is there, with how many come before it, and may be changed in place.
    """
    loops = loops_for(bitmap, dtype=torch.uint8)
    if loops is None:
        places = unpack(bitmap, size, 1).nonzero().squeeze(1)
        return places, [then(0, places)]
    before = [0, *accumulate(counts)]
    places = torch.empty(before[-1], dtype=torch.int64)
    rows = max(1, bitmap.numel())

    def stretch(start: int, stop: int) -> Result:
        first = before[start // rows]
        some = places[first : before[-(-stop // rows)]]
        loops.marked(vector(bitmap), start, stop, vector(some))
        return then(first, some)

    return places, spread(stretch, size, rows)
