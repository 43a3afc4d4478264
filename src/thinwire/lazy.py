"""Tensors that may not be written out yet, as a reducer's outcome can be."""

from typing import Protocol

import torch
from torch import Tensor


class Lazy(Protocol):
    """A tensor that is not written out yet, so that it can be written, or taken away, where it belongs."""

    def dense(self) -> Tensor: ...
    def copy_to(self, target: Tensor) -> None: ...
    def add_rest(self, x: Tensor, decay: float, total: Tensor, out: Tensor) -> None:
        """Write x + decay * (total - itself), to the same bits as one step after the other would give."""


class Rest:
    """What is left of a total: what is still to be taken away from it is, when it is next added to something."""

    def __init__(self, total: Tensor, sent: Lazy | None = None) -> None:
        self.total, self.sent = total, sent

    def dense(self) -> Tensor:
        """The tensor itself; nobody may write to it."""
        if self.sent is None:
            return self.total
        sent = self.sent.dense()
        return torch.sub(self.total, sent, out=sent)

    def added_to(self, x: Tensor, decay: float, out: Tensor) -> Tensor:
        """x + decay * itself. Multiplying and adding stay two steps, so that every entry is rounded alike."""
        if self.sent is not None:
            self.sent.add_rest(x, decay, self.total, out)
            return out
        if decay == 1:
            return torch.add(x, self.total, out=out)
        return torch.mul(self.total, decay, out=out).add_(x)


def dense(what: Tensor | Lazy | Rest) -> Tensor:
    """The tensor itself."""
    return what if isinstance(what, Tensor) else what.dense()


def norm(what: Tensor | Rest) -> float:
    """Its Euclidean norm, in 64 bits: in 32, the sum of many small squares is off by percents."""
    return float(torch.linalg.vector_norm(dense(what), dtype=torch.float64))


def copy_(target: Tensor, what: Tensor | Lazy) -> None:
    """Write it into a tensor of as many elements."""
    if isinstance(what, Tensor):
        target.copy_(what.view(target.shape))
    else:
        what.copy_to(target)


def left_after(total: Tensor, sent: Tensor | Lazy) -> Rest:
    """What is left of a total when part of it was sent; uses the total's memory."""
    if not isinstance(sent, Tensor):
        return Rest(total, sent)
    if sent.data_ptr() == total.data_ptr():  # sent as it is
        return Rest(total.new_zeros(total.shape))
    return Rest(total.sub_(sent))
