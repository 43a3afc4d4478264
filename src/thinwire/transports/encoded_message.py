"""Messages that are sealed, sent whole to whoever hears them, and decoded one by one."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core import EACH, Envelope, Reply
from ..core.lazy import Lazy, WeightedSum, materialize, outline
from ..core.precision import working
from ..wire import payload
from .all_reduce import weighted_sum


class EncodedMessages:
    """One message of a round: what I say to whom, whom I hear, and what comes of it."""

    def __init__(self, index: int, envelope: Envelope, rank: int, size: int) -> None:
        self.index, (self.peers, self.message), self.rank, self.size = index, envelope, rank, size
        self.heard: dict[int, Tensor] = {}  # by speaker
        self.said: dict[int, Tensor] = {}  # by listener, without myself
        source, target = self.message.source, self.message.target
        # Where all have the same peers, a rank that counts for nothing only listens.
        alike = self.peers.receivers is None and source is None
        silent = {r for r, weight in self.peers.weights if alike and weight == 0}
        self.weights = {r: weight for r, weight in self.peers.weights if r not in silent}
        self.will_communicate = source in (None, EACH, rank) and rank not in silent
        self.hears = target in (None, EACH, rank)
        others = [r for r, _ in self.peers.weights if r != rank]
        receivers = others if self.peers.receivers is None else [r for r in self.peers.receivers if r != rank]
        speakers = [r for r in others if r not in silent] if source in (None, EACH) else [source]
        self.speakers = {r for r in speakers if r != rank} if self.hears else set()
        self.receivers = receivers if target in (None, EACH) else [r for r in receivers if r == target]
        if not self.will_communicate:
            self.receivers = []
        self.shareable = self.peers.receivers is None and len(others) == size - 1
        # What one rank says to another stands for: the tensor, or a shard of it.
        self.whole = outline(self.message.tensor)
        self.like = self.whole
        if target == EACH:
            self.like = self.whole.new_empty(-(-self.whole.numel() // size))
        self.heard_bytes = payload.sealed_bytes(self.message.codec, self.like)
        self.most_bytes = payload.most_bytes(self.like)

    def speak(self) -> int:
        """Encode what this rank has to say; returns its size."""
        if not self.will_communicate:
            return 0
        if self.message.target == EACH:
            flat = materialize(self.message.tensor).flatten()
            whole = pad(flat, (0, self.like.numel() * self.size - flat.numel()))
            said = [self._encode(shard) for shard in whole.view(self.size, -1)]
            self.said = {r: said[r] for r in self.receivers}
            self.mine = said
            return sum(buffer.nbytes for buffer in said)
        buffer = self._encode(self.message.tensor)
        self.said = dict.fromkeys(self.receivers, buffer)
        self.mine = [buffer]
        return buffer.nbytes

    def reply(self, shared: dict[Any, Any]) -> Reply[Any]:
        reply = self._reply(shared)
        return reply if self.message.lazy else Reply(materialize(reply.reduced), materialize(reply.sent))

    def _reply(self, shared: dict[Any, Any]) -> Reply[Tensor | Lazy]:
        sent = self._sent()
        source, target = self.message.source, self.message.target
        if not self.hears:
            return Reply(self._zeros(self.like), sent)
        if target == EACH:  # a sum of shards that only this rank hears
            return Reply(self._weighted(self._decode(self.mine[self.rank]) if self.will_communicate else None), sent)
        if target is not None or not self.shareable:
            return Reply(self._heard(source, sent), sent)
        key = ("sealed", self.index)
        if key not in shared:
            shared[key] = self._heard(source, sent)
        return Reply(shared[key], sent)

    def _heard(self, source: int | None, sent: Tensor | Lazy) -> Tensor | Lazy:
        if source is None:
            return self._weighted(sent if self.will_communicate else None)
        if source == EACH:
            return torch.stack([materialize(x) for x in self._all(sent)])
        return sent if self.will_communicate else self._decode(self.heard[source])

    def _all(self, own: Tensor | Lazy | None) -> Iterator[Tensor | Lazy]:
        """What every rank that is weighed said, in the order of the ranks, decoded as it is asked for."""
        for r in self.weights:
            yield own if r == self.rank and own is not None else self._decode(self.heard[r])

    def _weighted(self, own: Tensor | Lazy | None) -> Tensor | Lazy:
        weights = list(self.weights.values())
        if not weights:  # it only speaks in this round
            return self._zeros(self.like)
        said = self._all(own)
        first = next(said)
        said = chain([first], said)
        if isinstance(first, Lazy) and first.sparse and first.dtype == working(first.dtype):
            return WeightedSum(list(said), weights)  # type: ignore[arg-type]  # all are decoded alike
        return weighted_sum(said, weights).to(self.like.dtype)

    def _sent(self) -> Tensor | Lazy:
        if not self.will_communicate:
            return self._zeros(self.whole)
        if self.message.target != EACH:
            return self._decode(self.mine[0])
        whole = torch.cat([materialize(self._decode(shard)) for shard in self.mine])
        return whole[: self.whole.numel()].view(self.whole.shape)

    def _encode(self, x: Tensor | Lazy) -> Tensor:
        return payload.encode(x, self.message.codec, self.message.seed)

    def _decode(self, buffer: Tensor) -> Tensor | Lazy:
        return payload.decode_lazy(buffer, self.message.codec, self.message.seed, self.like)

    def _zeros(self, like: Tensor) -> Tensor:
        return torch.zeros((), dtype=like.dtype, device=self.message.tensor.device).expand(like.shape)
