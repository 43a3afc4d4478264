from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Message, Reducer, Reply
from ..precision import working
from .average import STRIDE


class ServerState(NamedTuple):
    residual: Tensor  # what the server has not yet said; zero on every other rank
    seed: int


def check_codecs(name: str, up: Codec, down: Codec) -> None:
    for direction, codec in (("up", up), ("down", down)):
        if not isinstance(codec, Codec):
            raise ValueError(f"{name} takes a codec for {direction}, not {codec!r}")


@dataclass(frozen=True, repr=False)
class Server(Reducer):
    """Speaks to one rank, which answers with what it can say of the sum and remembers the rest."""

    up: Codec  # from the ranks to the server
    down: Codec  # from the server to the ranks
    at: int = 0  # the rank that serves

    def __post_init__(self) -> None:
        check_codecs("Server", self.up, self.down)
        if not (isinstance(self.at, int) and self.at >= 0):
            raise ValueError(f"Server is at a rank of 0 or more, not {self.at!r}")

    def init(self, like: Tensor, seed: int) -> ServerState:
        return ServerState(torch.zeros(like.shape, dtype=working(like.dtype), device=like.device), seed)

    def reduce(self, x: Tensor, state: ServerState) -> Conversation:
        heard = yield Message(x, self.up, state.seed, target=self.at)
        total = heard.reduced + state.residual
        answer = yield Message(total, self.down, state.seed, source=self.at)
        reply = Reply(answer.reduced.to(x.dtype), heard.sent)
        return reply, ServerState(total - answer.sent, state.seed + STRIDE)

    def unsaid(self, state: ServerState) -> Tensor:
        return state.residual
