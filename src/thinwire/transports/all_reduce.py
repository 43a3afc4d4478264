"""Linear messages: the sum of the signals stands for the sum of the tensors, so the signals are all-reduced.

Each rank sums one shard of all signals, in the order of the ranks and in at least 32 bits. Then the ranks gather the
sums. The volume is that of a ring all-reduce. Unlike with a ring, the result does not depend on what else is in the
round: a gradient gives the same bits in any bucket, on every rank and in a simulation.
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
    """The linear messages of a round whose signals have one type and one set of weights."""

    def __init__(self, weights: Sequence[float], messages: dict[int, tuple[Message, Parts]], rank: int) -> None:
        self.weights, self.messages, self.rank = weights, messages, rank
        self.received: dict[int, Tensor] = {}
        signals = [parts[0].flatten() for _, parts in messages.values()]
        self.signal = signals[0] if len(signals) == 1 else torch.cat(signals)
        self.shard_size = -(-self.signal.numel() // len(weights))
        self.total = torch.empty_like(self.signal)

    @classmethod
    def grouped(cls, envelopes: Iterable[tuple[int, Envelope]], rank: int, size: int) -> list["AllReduce"]:
        groups: dict[Any, dict[int, tuple[Message, Parts]]] = defaultdict(dict)
        for i, (peers, message) in envelopes:
            parts = message.codec.encode((materialize(message.tensor),), message.seed)
            assert all(part.is_meta for part in parts[1:]), "a linear codec has no side information but outlines"
            groups[tuple(weight for _, weight in peers.weights), parts[0].dtype][i] = (message, parts)
        # The widest numbers first, so that every group's shard is aligned in the buffer.
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
        if not self.shard_bytes(self.rank):
            return
        self.received[self.rank] = self.signal_shard(self.rank)
        counted = [r for r, weight in enumerate(self.weights) if weight] or [self.rank]  # the others only receive
        shards = (self.received[r].view(self.signal.dtype) for r in counted)
        total = weighted_sum(shards, [self.weights[r] for r in counted])
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
    """The sum in the given order, in at least 32 bits.

    Multiplications and additions stay apart: joined in one instruction they would round differently, and not every
    entry of a tensor goes through the same instructions.
    """
    total: Tensor | None = None
    equal = len(set(weights)) == 1
    for tensor, weight in zip(tensors, weights, strict=True):
        if total is not None and isinstance(tensor, Lazy):
            tensor.add_to(total, None if equal else weight)
            continue
        written = materialize(tensor)
        term = written if equal else written.to(working(written.dtype)) * weight
        if total is None:
            total = term.to(working(term.dtype), copy=equal and written is tensor)
        else:
            total.add_(term)
    assert total is not None, "a sum has at least one term"
    return total.mul_(weights[0]) if equal else total


def _bytes_of_shard(flat: Tensor, rank: int, shard_size: int) -> Tensor:
    return flat[rank * shard_size : (rank + 1) * shard_size].view(torch.uint8)
