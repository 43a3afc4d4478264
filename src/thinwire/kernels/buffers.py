"""Memory for the parts of one message."""

import torch
from torch import Tensor


def side_by_side(nbytes: int, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A byte tensor and a number tensor, adjacent in one buffer if alignment permits: then both are sent uncopied."""
    if nbytes % dtype.itemsize:
        return torch.empty(nbytes, dtype=torch.uint8), torch.empty(count, dtype=dtype)
    buffer = torch.empty(nbytes + count * dtype.itemsize, dtype=torch.uint8)
    return buffer[:nbytes], buffer[nbytes:].view(dtype)
