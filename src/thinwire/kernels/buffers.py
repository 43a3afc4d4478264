"""Memory for the parts of one message."""

import torch
from torch import Tensor


def side_by_side(nbytes: int, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Room for bytes and for numbers behind them: in one buffer where that can be, which is then sent as it is."""
    if nbytes % dtype.itemsize:
        return torch.empty(nbytes, dtype=torch.uint8), torch.empty(count, dtype=dtype)
    buffer = torch.empty(nbytes + count * dtype.itemsize, dtype=torch.uint8)
    return buffer[:nbytes], buffer[nbytes:].view(dtype)
