from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from ..codecs import Identity, Nonzero, TopK
from ..core import Codec, Conversation, Message, Parameter, Reducer, Reply, broadcast_from, reduce_to, send
from ..core.described import Described, parts_of
from ..core.lazy import DeferredDifference
from ..core.precision import working
from .average import STRIDE, Average, as_reducer
from .contraction import shrunk
from .leader_top_k import LeaderTopK
from .power_iteration import PowerIteration
from .power_sgd import PowerSGD
from .serving import ServerState, check_codec
from .sharded import Sharded


@dataclass(frozen=True, repr=False)
class Server(Reducer):
    """Parameter server with compression in both directions, as in DoubleSqueeze (Tang et al., 2019).

    With a codec as `up`, every rank sends its tensor to the server. The server adds its residual to their mean, sends
    the result through `down`, and keeps the compression error as its next residual. With a reducer as `up`, each of its
    messages goes through the server, which keeps no residual. The server sends a mean of messages in their own codec if
    that is linear, and through `down` if not. It forwards a message of one rank in the codec of that message.
    """

    up: Codec | Reducer  # from the ranks to the server
    down: Codec  # from the server to the ranks
    rank: int = 0  # of the server
    dedicated: bool = False  # the server has no gradients of its own

    def __post_init__(self) -> None:
        if isinstance(self.up, Average):  # the same as its codec alone
            object.__setattr__(self, "up", self.up.codec)
        if not isinstance(self.up, Reducer):
            check_codec("Server", "up", self.up)
        check_codec("Server", "down", self.down)
        if any(getattr(part, "by_rate", False) for part in parts_of(self.up)):
            raise ValueError(f"{self.up!r} uses the learning rate, which a server does not support")
        if not isinstance(self.up, Reducer):  # the server keeps a residual, so `down` must be a contraction
            shrunk("Server", self.down)
        if any(isinstance(part, Server | Sharded) for part in parts_of(self.up)):
            raise ValueError(f"{self.up!r} has its own server, so it cannot go through this one")
        if not (isinstance(self.rank, int) and self.rank >= 0):
            raise ValueError(f"Server runs on a rank of 0 or more, not {self.rank!r}")
        if not isinstance(self.dedicated, bool):
            raise ValueError(f"Server(dedicated=...) is True or False, not {self.dedicated!r}")

    def map_inner(self, change: Callable[[Any], Any]) -> Self:
        return replace(self, up=change(self.up))  # not `down`: the server keeps a residual for its error

    @property
    def lossless(self) -> bool:
        return self.up == self.down == Identity()

    @property
    def message_codec(self) -> Codec | None:
        return self.up if isinstance(self.up, Codec) else None

    @property
    def needs_shape(self) -> bool:
        return as_reducer(self.up).needs_shape

    def specialize(self, parameter: Parameter) -> Reducer:
        up = as_reducer(self.up).specialize(parameter._replace(server=self.rank))
        if up == as_reducer(self.up):
            return self
        if not isinstance(up, Average):
            return replace(self, up=up)
        # LeaderTopK sends the last layer by plain top-k: each rank sends few entries, and their sum has more.
        if isinstance(self.up, LeaderTopK) and isinstance(up.codec, TopK):
            return replace(self, up=up.codec, down=Nonzero())
        return replace(self, up=up.codec, down=up.codec if up.codec.linear else self.down)

    @property
    def is_linear(self) -> bool:
        """Whether every message of `up` has a linear codec, so that `down` is never used."""
        return isinstance(self.up, PowerIteration | PowerSGD) and self.up.codec.linear

    @property
    def answer_varies(self) -> bool:
        return self.down.variable and not self.is_linear

    def diagnose(self, parameters: Collection[Parameter]) -> list[str]:
        if self.down == Identity() or not self.is_linear:
            return []
        return [f"{self.down!r} has no effect in {self!r}: linear messages are answered through their own codec"]

    def init(self, like: Tensor, seed: int) -> Any:
        if isinstance(self.up, Reducer):
            return self.up.init(like, seed)
        return ServerState(torch.zeros(like.shape, dtype=working(like.dtype), device=like.device), seed)

    def reduce(self, x: Tensor, state: Any) -> Conversation:
        if isinstance(self.up, Reducer):
            return (yield from self._through(self.up.reduce(x, state)))
        received = yield Message(x, self.up, state.seed, route=reduce_to(self.rank))
        total = received.reduced + state.residual
        answer = yield Message(total, shrunk("Server", self.down), state.seed, route=broadcast_from(self.rank))
        reply = Reply(answer.reduced.to(x.dtype), received.sent)
        return reply, ServerState(total - answer.sent, state.seed + STRIDE)

    def _through(self, conversation: Conversation) -> Conversation:
        """Run a conversation between all ranks with each of its messages routed through the server."""
        try:
            message = next(conversation)
            while True:
                message = conversation.send((yield from self._routed(message)))
        except StopIteration as end:
            result: tuple[Reply[Any], Any] = end.value
            return result

    def _routed(self, message: Message) -> Generator[Message, Reply[Any], Reply[Any]]:
        route = message.route
        if route.target is not None or route.source == self.rank:  # to the server alone, or from it
            return (yield message)
        assert route.result in ("sum", "message"), "all messages of all ranks must go to one rank"
        up = reduce_to(self.rank) if route.source is None else send(route.source, self.rank)
        received = yield message._replace(route=up)
        if route.result == "sum":
            message = message._replace(codec=message.codec if message.codec.linear else self.down)
        answer = yield message._replace(tensor=received.reduced, route=broadcast_from(self.rank))
        return Reply(answer.reduced, received.sent)

    def fuse(self, sizes: tuple[int, ...]) -> Reducer | None:
        up = as_reducer(self.up).fuse(sizes)
        return None if up is None else replace(self, up=up)

    def inner_states(self, state: Any) -> tuple[tuple[Reducer, Any], ...]:
        return ((self.up, state),) if isinstance(self.up, Reducer) else ()

    def residual(self, state: Any) -> Tensor | DeferredDifference | None:
        return super().residual(state) if isinstance(self.up, Reducer) else state.residual


def servers(method: Described) -> frozenset[int]:
    """The ranks that are parameter servers.

    Examples:
        >>> from thinwire import Quantize, served
        >>> from thinwire.inspect import servers
        >>> servers(served(Quantize(8), rank=2))
        frozenset({2})
    """
    return frozenset(part.rank for part in parts_of(method) if isinstance(part, Server))


def dedicated_servers(method: Described) -> frozenset[int]:
    """The parameter servers that have no gradients of their own."""
    return frozenset(part.rank for part in parts_of(method) if isinstance(part, Server) and part.dedicated)
