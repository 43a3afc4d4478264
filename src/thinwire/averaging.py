"""The mean of all replicas, as a model of its own."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from .session import Session


def averaged(session: Session, model: nn.Module) -> nn.Module:
    """A copy of the model with the mean of what is trained and of its buffers; the rest is alike on all ranks."""
    names = {id(p): name for name, p in session.replica.parameters.items()}
    buffers = {f"buffer {name}": x for name, x in model.named_buffers()}
    found = session.consensus(buffers)
    copy = deepcopy(model)
    with torch.no_grad():
        for (_, here), (_, there) in zip(model.named_parameters(), copy.named_parameters(), strict=True):
            _put(there, found.means.get(names.get(id(here), "")))
        for name, buffer in copy.named_buffers():
            _put(buffer, found.means.get(f"buffer {name}"))
    return copy


def _put(there: Tensor, mean: Tensor | None) -> None:
    if mean is not None:
        there.copy_(mean)
