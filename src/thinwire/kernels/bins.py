"""What AdaComp selects: bin by bin, the entries that another gradient like this one would make the largest."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def selected(total: Tensor, gradient: Tensor, bin_size: int, factor: float) -> Tensor:
    """A tensor like the total, zero but for the selected entries, which have their sign and one size.

    That size is the mean over the bins of the largest in each. If anything is not finite, nothing here is.
    """
    flat, again = total.flatten(), gradient.flatten().to(total.dtype)
    bins = -(-flat.numel() // bin_size)
    largest = _in_bins(flat.abs(), bins, bin_size).amax(1)
    # One after the other and in 64 bits, so that the mean is the same however it is computed.
    scale = (largest.double().cumsum(0)[-1] / bins).to(total.dtype)
    if not scale.isfinite():
        return torch.full_like(total, torch.nan)
    reach = torch.add(flat, again, alpha=factor - 1).abs_()
    large = (_in_bins(reach, bins, bin_size) >= largest[:, None]).view(-1)[: flat.numel()]
    # Nothing is sent from bins of zeros, where everything is as large as the largest.
    return (flat.sign() * large * scale).view(total.shape)


def _in_bins(flat: Tensor, bins: int, bin_size: int) -> Tensor:
    return pad(flat, (0, bins * bin_size - flat.numel())).view(bins, bin_size)
