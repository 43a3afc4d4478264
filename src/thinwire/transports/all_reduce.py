"""Linear messages: the sum of the signals stands for the sum of the tensors, so the signals are all-reduced.

Each rank sums one shard of all signals, in the order of the ranks and in at least 32 bits. Then the ranks gather the
sums. The volume is that of a ring all-reduce. Unlike with a ring, the result does not depend on the other messages of
the round: a gradient gives the same bits in any bucket, on every rank and in a simulation.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core import Envelope, Message, Parts, Reply
from ..core.lazy import Lazy, materialize
from ..core.precision import working


class AllReduce:
    """Sums the linear messages of a round whose signals share one dtype and one set of weights."""

    def __init__(self, weights: Sequence[float], messages: dict[int, tuple[Message, Parts]], rank: int) -> None:
        self.weights, self.messages, self.rank = weights, messages, rank
        self.received: dict[int, Tensor] = {}
        signals = [parts[0].flatten() for _, parts in messages.values()]
        self.signal = signals[0] if len(signals) == 1 else torch.cat(signals)
        self.shard_size = -(-self.signal.numel() // len(weights))
        self.total = torch.empty_like(self.signal)

    @classmethod
    def grouped(cls, envelopes: Iterable[tuple[int, Envelope]], rank: int, size: int) -> list["AllReduce"]:
        """One AllReduce for each dtype and set of weights; envelopes come with their index in the round."""
        groups: dict[Any, dict[int, tuple[Message, Parts]]] = defaultdict(dict)
        for i, (peers, message) in envelopes:
            parts = message.codec.encode((materialize(message.tensor),), message.seed)
            assert all(part.is_meta for part in parts[1:]), "the side information of a linear codec is outlines only"
            groups[tuple(weight for _, weight in peers.weights), parts[0].dtype][i] = (message, parts)
        # The widest dtype first, so that every group's shard is aligned in the buffer.
        ordered = sorted(groups.items(), key=lambda group: -group[0][1].itemsize)
        return [cls(weights, messages, rank) for (weights, _), messages in ordered]

    def payload_bytes(self) -> list[tuple[str, int]]:
        """The bytes of this rank's payload, by unit."""
        return [(message.unit, signal.nbytes) for message, (signal, *_) in self.messages.values()]

    def signal_shard(self, rank: int) -> Tensor:
        return _bytes_of_shard(self.signal, rank, self.shard_size)

    def total_shard(self, rank: int) -> Tensor:
        return _bytes_of_shard(self.total, rank, self.shard_size)

    def shard_bytes(self, rank: int) -> int:
        start, stop = (min(r * self.shard_size, self.signal.numel()) for r in (rank, rank + 1))
        return (stop - start) * self.signal.itemsize

    def add_up(self) -> None:
        """Sum this rank's shard of the signals of all ranks."""
        if not self.shard_bytes(self.rank):
            return
        self.received[self.rank] = self.signal_shard(self.rank)
        summands = [r for r, weight in enumerate(self.weights) if weight] or [self.rank]  # others only receive
        shards = (self.received[r].view(self.signal.dtype) for r in summands)
        total = weighted_sum(shards, [self.weights[r] for r in summands])
        self.total_shard(self.rank).view(self.signal.dtype).copy_(total)

    def replies(self, shared: dict[Any, Tensor]) -> dict[int, Reply[Tensor]]:
        total = shared.setdefault(("sum", min(self.messages)), self.total)
        replies, start = {}, 0
        for i, (message, (signal, *side)) in self.messages.items():
            summed = total[start : start + signal.numel()].view(signal.shape)
            (reduced,) = message.codec.decode((summed, *side), message.seed)
            (sent,) = message.codec.decode((signal, *side), message.seed)
            replies[i] = Reply(reduced, sent)
            start += signal.numel()
        return replies


def weighted_sum(tensors: Iterable[Tensor | Lazy], weights: Sequence[float]) -> Tensor:
    """The weighted sum in the given order, in at least 32 bits.

    Multiplications and additions are separate operations: a fused multiply-add rounds differently, and the vectorized
    part of a tensor may use it where the remainder does not.
    """
    total: Tensor | None = None
    equal = len(set(weights)) == 1
    for tensor, weight in zip(tensors, weights, strict=True):
        if total is not None and isinstance(tensor, Lazy):
            tensor.add_to(total, None if equal else weight)
            continue
        dense = materialize(tensor)
        term = dense if equal else dense.to(working(dense.dtype)) * weight
        if total is None:
            total = term.to(working(term.dtype), copy=equal and dense is tensor)
        else:
            total.add_(term)
    assert total is not None, "a sum has at least one term"
    return total.mul_(weights[0]) if equal else total


def _bytes_of_shard(flat: Tensor, rank: int, shard_size: int) -> Tensor:
    return flat[rank * shard_size : (rank + 1) * shard_size].view(torch.uint8)
