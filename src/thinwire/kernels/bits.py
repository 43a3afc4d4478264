"""Small unsigned integers, packed into bytes at their true width."""

from functools import cache

import torch
from torch import Tensor

# A width is cut into these fields, widest first: 3 bits are a field of 2 and a field of 1.
FIELDS = (8, 4, 2, 1)


@cache
def _fields(width: int) -> tuple[tuple[int, int], ...]:
    """(bits, shift) of each field, from the lowest bits up."""
    cut, shift = [], 0
    while shift < width:
        bits = next(f for f in FIELDS if f <= width - shift)
        cut.append((bits, shift))
        shift += bits
    return tuple(cut)


def bytes_of(x: Tensor) -> Tensor:
    """The tensor's memory as bytes, in index order.

    For tensors of at most one entry, torch takes any stride for contiguous, so the stride is set here.
    """
    return x.contiguous().as_strided((x.numel(),), (1,)).view(torch.uint8)


def packed_bytes(count: int, width: int) -> int:
    return sum(-(-count * bits // 8) for bits, _ in _fields(width))


def pack(codes: Tensor, width: int) -> Tensor:
    """Pack a vector of integers in [0, 2**width) into uint8.

    Within a field, byte j holds elements j, j + m, j + 2m, ...: whole rows are shifted and joined at once,
    and a byte-wise entropy coder still sees complete symbols.
    """
    if width == 8:
        return codes.to(torch.uint8)
    planes = []
    for bits, shift in _fields(width):
        field = ((codes >> shift) & (2**bits - 1)).to(torch.uint8)
        lanes = 8 // bits
        if lanes > 1:
            rows = -(-field.numel() // lanes)
            field = torch.nn.functional.pad(field, (0, rows * lanes - field.numel())).view(lanes, rows)
            joined = field[0].clone()
            for lane in range(1, lanes):
                joined |= field[lane] << (bits * lane)
            field = joined
        planes.append(field)
    return torch.cat(planes) if planes else codes.new_empty(0, dtype=torch.uint8)


def unpack(packed: Tensor, count: int, width: int) -> Tensor:
    """The `count` integers that `pack` packed: uint8 up to 8 bits, int64 above."""
    if width == 8:
        return packed[:count]
    dtype = torch.uint8 if width <= 8 else torch.int64
    codes = torch.zeros(count, dtype=dtype, device=packed.device)
    start = 0
    for bits, shift in _fields(width):
        lanes = 8 // bits
        rows = -(-count // lanes)
        field = packed[start : start + rows]
        start += rows
        if lanes > 1:
            mask = 2**bits - 1
            field = torch.cat([(field >> (bits * lane)) & mask for lane in range(lanes)])[:count]
        codes |= field.to(dtype) << shift
    return codes
