"""Rounding to a table of numbers, and back, with one table look-up per entry."""

import numpy as np
import torch
from torch import Tensor

from .compiled import loops_for, vector
from .threads import spread

MANTISSA = 23  # bits of a 32-bit float's mantissa


def ranked(x: Tensor, table: Tensor, bits: int, middle: int, strange: int) -> Tensor:
    """middle +- the rank of each entry's magnitude, by its sign, as uint8; `strange` for entries that are not finite.

    The rank depends only on the exponent and the first `bits` bits of the mantissa, which index the table.
    """
    shift = MANTISSA - bits
    loops = loops_for(x)
    if loops is not None:
        out = torch.empty(x.numel(), dtype=torch.uint8)
        of_x, to, ranks = vector(x).view(np.int32), vector(out), vector(table)
        numbers = shift, middle, strange
        spread(lambda start, stop: loops.ranked(of_x[start:stop], ranks, *numbers, to[start:stop]), x.numel())
        return out
    bits_of_x = x.to(torch.float32).contiguous().view(torch.int32)
    rank = table[((bits_of_x & 0x7FFFFFFF) >> shift).long()].to(torch.int16)
    codes = torch.where(bits_of_x < 0, middle - rank, middle + rank)
    return torch.where(x.isfinite(), codes, strange).to(torch.uint8)


def looked_up(codes: Tensor, numbers: Tensor) -> Tensor:
    """The number of each code; all codes must be within the table."""
    loops = loops_for(codes, dtype=torch.uint8) if numbers.dtype == torch.float32 else None
    if loops is None:
        return numbers[codes.long()]
    out = torch.empty(codes.numel())
    of, to, table = vector(codes), vector(out), vector(numbers)
    spread(lambda start, stop: loops.looked_up(of[start:stop], table, to[start:stop]), codes.numel())
    return out
