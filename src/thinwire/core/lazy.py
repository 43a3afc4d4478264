"""Lazy tensors: sparse, quantized or low-rank tensors that are not materialized until all entries are needed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite

import torch
from torch import Tensor


class Lazy(ABC):
    """A tensor that is not materialized yet: it can be written into, added to or subtracted from another directly."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    sparse: bool = False  # it has so few nonzero entries that writing them takes much less than a pass over all

    @abstractmethod
    def copy_to(self, target: Tensor) -> None:
        """Write it into a tensor with the same number of elements, of any dtype and layout."""

    def dense(self) -> Tensor:
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        self.copy_to(out)
        return out

    def add_to(self, total: Tensor, weight: float | None = None) -> None:
        """Add it, times a weight if one is given, to a contiguous tensor of its shape."""
        added = self.dense().to(total.dtype)
        total.add_(added if weight is None else added * weight)

    def rest_of(self, total: Tensor) -> "DeferredDifference":
        """The total minus this tensor; may use the total's memory."""
        return DeferredDifference(total.sub_(self.dense()))

    def add_rest(self, x: Tensor, decay: float, total: Tensor, out: Tensor) -> None:
        """Write x + decay * (total - itself) into `out`, with the same bits as if each operation were a pass."""
        torch.sub(total, self.dense(), out=out)
        if decay != 1:
            out.mul_(decay)
        out.add_(x)

    def zero_where(self, target: Tensor) -> None:
        """Set a contiguous tensor of its shape to zero where this tensor is nonzero."""
        target.masked_fill_(self.dense() != 0, 0)

    def pieces(self, sizes: list[int]) -> "Sequence[Tensor | Lazy]":
        """Its entries, flattened and cut into pieces of these sizes."""
        return torch.split(self.dense().view(-1), sizes)

    def times(self, factor: float) -> "Tensor | Lazy":
        """All of its entries, times a factor."""
        return self.dense().mul_(factor)

    def bound(self) -> float:
        """An upper bound on the magnitude of its entries; NaN or infinity if an entry may be."""
        return float(self.dense().abs().amax()) if self.shape.numel() else 0.0


class DeferredDifference:
    """A total minus what was sent of it. The subtraction is done when the difference is next added to a tensor."""

    def __init__(self, total: Tensor, sent: Lazy | None = None) -> None:
        self.total, self.sent = total, sent

    def dense(self) -> Tensor:
        """The difference as a tensor. Read-only."""
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


class WeightedSum(Lazy):
    """A sum of tensors of few entries; each is weighted before it is added.

    It is shared by ranks that are simulated: from the second that writes it on, it is copied.
    """

    sparse = True

    def __init__(self, terms: Sequence[Lazy], weights: Sequence[float]) -> None:
        self.terms, self.weights = terms, weights
        self.shape, self.dtype, self.device = terms[0].shape, terms[0].dtype, terms[0].device
        self._written = 0
        self._dense: Tensor | None = None
        self._bound: float | None = None

    def copy_to(self, target: Tensor) -> None:
        self._written += 1
        if self._dense is None and (self._written > 1 or not target.is_contiguous() or target.dtype != self.dtype):
            self._dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
            self.add_to(self._dense)
        if self._dense is not None:
            target.copy_(self._dense.view(target.shape))
        else:
            target.zero_()
            self.add_to(target)

    def add_to(self, total: Tensor, weight: float | None = None) -> None:
        for term, its_weight in zip(self.terms, self.weights, strict=True):
            term.add_to(total, its_weight if weight is None else its_weight * weight)

    def bound(self) -> float:
        if self._bound is None:
            self._bound = sum(abs(w) * term.bound() for term, w in zip(self.terms, self.weights, strict=True))
        return self._bound


class LazyCoding(ABC):
    """A codec's methods on lazy tensors. By default they materialize; a codec with a faster way overrides them."""

    @abstractmethod
    def encode(self, parts: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]: ...

    @abstractmethod
    def decode(self, parts: tuple[Tensor, ...], seed: int) -> tuple[Tensor, ...]: ...

    def pick(self, x: Tensor, rest: DeferredDifference, decay: float, out: Tensor) -> Tensor | Lazy:
        """Write x + decay * rest into `out`. Returns the part of it to encode: all entries, or those that are kept."""
        return rest.added_to(x, decay, out)

    def encode_lazy(self, x: Tensor | Lazy, seed: int) -> tuple[Tensor, ...]:
        return self.encode((materialize(x),), seed)

    def decode_lazy(self, parts: tuple[Tensor, ...], seed: int) -> tuple[Tensor | Lazy, tuple[Tensor, ...]]:
        """The signal, and the parts below it."""
        x, *below = self.decode(parts, seed)
        return x, tuple(below)


def outline(what: Tensor | Lazy) -> Tensor:
    """A meta tensor of its shape and dtype."""
    return hollow(what.shape, what.dtype)


@lru_cache(maxsize=4096)
def hollow(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A meta tensor, cached: callers share it and must not change it."""
    return torch.empty(shape, dtype=dtype, device="meta")


def materialize(what: Tensor | Lazy | DeferredDifference) -> Tensor:
    """The tensor with all its entries."""
    return what if isinstance(what, Tensor) else what.dense()


def norm(what: Tensor | DeferredDifference) -> float:
    """Its Euclidean norm, in 64 bits: in 32, the sum of many small squares is off by percents."""
    return float(torch.linalg.vector_norm(materialize(what), dtype=torch.float64))


def copy_(target: Tensor, what: Tensor | Lazy) -> None:
    """Write it into a tensor with the same number of elements."""
    if isinstance(what, Tensor):
        target.copy_(what.view(target.shape))
    else:
        what.copy_to(target)


def pieces(what: Tensor | Lazy, sizes: list[int]) -> Sequence[Tensor | Lazy]:
    """Its entries, flattened and cut into pieces of these sizes."""
    return torch.split(what.reshape(-1), sizes) if isinstance(what, Tensor) else what.pieces(sizes)


def zero_where(target: Tensor, what: Tensor | Lazy) -> None:
    """Set a contiguous tensor to zero where another one is nonzero."""
    if isinstance(what, Tensor):
        target.masked_fill_(what != 0, 0)
    else:
        what.zero_where(target)


def left_after(total: Tensor, sent: Tensor | Lazy) -> DeferredDifference:
    """The total minus what was sent of it; uses the total's memory."""
    if not isinstance(sent, Tensor):
        return sent.rest_of(total)
    if sent.data_ptr() == total.data_ptr():  # the total itself was sent
        return DeferredDifference(total.new_zeros(total.shape))
    return DeferredDifference(total.sub_(sent))


def is_finite(what: Tensor | Lazy) -> bool:
    """Whether every entry is finite."""
    if not isinstance(what, Tensor):
        bound = what.bound()
        if isfinite(bound) and bound <= torch.finfo(what.dtype).max:
            return True
        what = what.dense()
    # One pass that only reads. If the sum overflows, the entries may still be finite, so look at each.
    wide = torch.promote_types(what.dtype, torch.float32)
    return isfinite(what.sum(dtype=wide)) or bool(what.isfinite().all())
