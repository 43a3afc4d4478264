import torch


def working(dtype: torch.dtype) -> torch.dtype:
    """The dtype for computing and for state: 16-bit floats are too coarse for scales, sums and residuals."""
    return torch.float32 if dtype.itemsize < 4 else dtype
