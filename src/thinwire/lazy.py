"""Tensors that may not be written out yet, as a reducer's outcome can be."""

from typing import Protocol

from torch import Tensor


class Lazy(Protocol):
    """A tensor that is not written out yet, so that it can be written, or subtracted, where it belongs."""

    def dense(self) -> Tensor: ...
    def copy_to(self, target: Tensor) -> None: ...
    def subtract_from(self, target: Tensor) -> None: ...


def dense(what: Tensor | Lazy) -> Tensor:
    """The tensor itself."""
    return what if isinstance(what, Tensor) else what.dense()


def copy_(target: Tensor, what: Tensor | Lazy) -> None:
    """Write it into a tensor of as many elements."""
    if isinstance(what, Tensor):
        target.copy_(what.view(target.shape))
    else:
        what.copy_to(target)


def left_after(total: Tensor, sent: Tensor | Lazy) -> Tensor:
    """What is left of a total when part of it was sent; uses the total's memory."""
    if not isinstance(sent, Tensor):
        sent.subtract_from(total)
        return total
    if sent.data_ptr() == total.data_ptr():  # sent as it is
        return total.new_zeros(total.shape)
    return total.sub_(sent)
