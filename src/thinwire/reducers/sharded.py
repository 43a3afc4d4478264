from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ..core import ALL_GATHER, REDUCE_SCATTER, Codec, Conversation, Message, Reducer, Reply
from ..core.precision import working
from .average import STRIDE
from .contraction import shrunk
from .serving import ServerState, check_codec


@dataclass(frozen=True, repr=False)
class Sharded(Reducer):
    """Sharded parameter server (compressed reduce-scatter and all-gather): every rank is the server of one shard.

    Each step, a rank sends every server its shard through `up`; a server sums, adds its residual and sends the result
    through `down`. The bytes per rank do not grow with the world size.
    """

    up: Codec  # from the ranks to a shard's server
    down: Codec  # from a shard's server to the ranks

    def __post_init__(self) -> None:
        check_codec("Sharded", "up", self.up)
        check_codec("Sharded", "down", self.down)
        shrunk("Sharded", self.down)

    def map_inner(self, change: Callable[[Any], Any]) -> Self:
        return replace(self, up=change(self.up))  # not `down`: the servers keep a residual for its error

    @property
    def message_codec(self) -> Codec:
        return self.up

    def init(self, like: Tensor, seed: int) -> ServerState:
        # Empty until the first sum is received: the size of a shard depends on the world size.
        return ServerState(torch.zeros(0, dtype=working(like.dtype), device=like.device), seed)

    def reduce(self, x: Tensor, state: ServerState) -> Conversation:
        received = yield Message(x, self.up, state.seed, route=REDUCE_SCATTER)
        total = received.reduced.to(state.residual.dtype)
        if state.residual.numel():
            total = total + state.residual
        answer = yield Message(total, shrunk("Sharded", self.down), state.seed, route=ALL_GATHER)
        agreed = answer.reduced.flatten()[: x.numel()].view(x.shape).to(x.dtype)
        return Reply(agreed, received.sent), ServerState(total - answer.sent, state.seed + STRIDE)

    def residual(self, state: ServerState) -> Tensor:
        return state.residual
