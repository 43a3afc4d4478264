"""Messages that each sender encodes with its codec and each receiver decodes one by one."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import Envelope, Reply
from ..core.lazy import Lazy, WeightedSum, materialize, outline
from ..core.precision import working
from ..wire import payload
from .all_reduce import weighted_sum


class EncodedMessage:
    """One message of a round: the buffers that this rank sends and receives for it, and the reply."""

    def __init__(self, index: int, envelope: Envelope, rank: int, size: int) -> None:
        self.index, (self.peers, self.message), self.rank, self.size = index, envelope, rank, size
        self.received: dict[int, Tensor] = {}  # by sender
        self.outgoing: dict[int, Tensor] = {}  # by receiver, without this rank
        peers, route = self.peers, self.message.route
        # If all ranks have the same peers, a rank of weight zero only receives.
        symmetric = peers.receivers is None and route.result in ("sum", "shard")
        unused = {r for r, weight in peers.weights if symmetric and weight == 0}
        self.weights = {r: weight for r, weight in peers.weights if r not in unused}
        self.sends = rank in route.senders(size) and rank not in unused
        self.receives = rank in route.receivers(size)
        ranks = [r for r, _ in peers.weights]
        senders = {r for r in ranks if r in route.senders(size) and r not in unused} - {rank}
        receivers = ranks if peers.receivers is None else peers.receivers
        self.senders = senders if self.receives else set()
        self.receivers = [r for r in receivers if r in route.receivers(size) and r != rank] if self.sends else []
        self.shareable = peers.receivers is None and len({*ranks, rank}) == size
        # An outline of what one buffer encodes: the tensor, or a shard of it.
        self.full = outline(self.message.tensor)
        self.like = self.full
        if route.result == "shard":
            self.like = self.full.new_empty(-(-self.full.numel() // size))
        self.buffer_bytes = payload.encoded_bytes(self.message.codec, self.like)  # None if it depends on the values
        self.max_bytes = payload.max_bytes(self.like)

    def encode(self) -> int:
        """Encode what this rank sends; returns the number of bytes."""
        if not self.sends:
            return 0
        if self.message.route.result == "shard":
            flat = materialize(self.message.tensor).flatten()
            padded = pad(flat, (0, self.like.numel() * self.size - flat.numel()))
            self.own = [self._encode(shard) for shard in padded.view(self.size, -1)]
            self.outgoing = {r: self.own[r] for r in self.receivers}
        else:
            self.own = [self._encode(self.message.tensor)]
            self.outgoing = dict.fromkeys(self.receivers, self.own[0])
        return sum(buffer.nbytes for buffer in self.own)

    def reply(self, shared: dict[Any, Any]) -> Reply[Any]:
        sent = self._sent()
        reply = Reply(self._reduced(sent, shared), sent)
        return reply if self.message.lazy else Reply(materialize(reply.reduced), materialize(reply.sent))

    def _reduced(self, sent: Tensor | Lazy, shared: dict[Any, Any]) -> Tensor | Lazy:
        route = self.message.route
        if not self.receives:
            return self._zeros(self.like)
        if route.result == "shard":
            return self._sum(self._decode(self.own[self.rank]) if self.sends else None)
        if route.target is not None or not self.shareable:
            return self._result(sent)
        key = ("encoded", self.index)
        if key not in shared:
            shared[key] = self._result(sent)
        return shared[key]  # type: ignore[no-any-return]  # `shared` holds results of several types

    def _result(self, sent: Tensor | Lazy) -> Tensor | Lazy:
        route = self.message.route
        if route.result == "sum":
            return self._sum(sent if self.sends else None)
        if route.result == "stack":
            return torch.stack([materialize(x) for x in self._decoded(sent)])
        assert route.source is not None, "only routes with one sender have this result"
        return sent if self.sends else self._decode(self.received[route.source])

    def _decoded(self, own: Tensor | Lazy | None) -> Iterator[Tensor | Lazy]:
        """The messages of all senders, in the order of the ranks, decoded on demand."""
        for r in self.weights:
            yield own if r == self.rank and own is not None else self._decode(self.received[r])

    def _sum(self, own: Tensor | Lazy | None) -> Tensor | Lazy:
        weights = list(self.weights.values())
        if not weights:  # this rank only sends in this round
            return self._zeros(self.like)
        messages = self._decoded(own)
        first = next(messages)
        messages = chain([first], messages)
        if isinstance(first, Lazy) and first.sparse and first.dtype == working(first.dtype):
            return WeightedSum(list(messages), weights)  # type: ignore[arg-type]  # one codec decodes all of them
        return weighted_sum(messages, weights).to(self.like.dtype)

    def _sent(self) -> Tensor | Lazy:
        if not self.sends:
            return self._zeros(self.full)
        if self.message.route.result != "shard":
            return self._decode(self.own[0])
        padded = torch.cat([materialize(self._decode(shard)) for shard in self.own])
        return padded[: self.full.numel()].view(self.full.shape)

    def _encode(self, x: Tensor | Lazy) -> Tensor:
        return payload.encode(x, self.message.codec, self.message.seed)

    def _decode(self, buffer: Tensor) -> Tensor | Lazy:
        return payload.decode_lazy(buffer, self.message.codec, self.message.seed, self.like)

    def _zeros(self, like: Tensor) -> Tensor:
        return torch.zeros((), dtype=like.dtype, device=self.message.tensor.device).expand(like.shape)
