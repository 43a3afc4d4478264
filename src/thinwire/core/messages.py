"""Messages between ranks, the replies, and the rounds that exchange them."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor

from .codec import Codec
from .described import Described
from .lazy import Lazy
from .routes import ALL_REDUCE, Route


class Message(NamedTuple):
    """A tensor that a rank sends, with its codec and route."""

    tensor: Tensor | Lazy  # of the same shape and type on all peers
    codec: Codec  # the same on all peers
    seed: int = 0  # shared by all peers
    route: Route = ALL_REDUCE
    lazy: bool = False  # the sender accepts a lazy reply
    unit: str = ""  # the meter counts it under this name


T = TypeVar("T", covariant=True)


class Reply(NamedTuple, Generic[T]):
    """The reply to a message. Read-only: ranks may share the tensors."""

    reduced: T  # what receivers get by the route; zeros on a rank that does not receive
    sent: T  # this rank's own message, as its receivers decode it; zeros on a rank that does not send


# Yields messages, receives the replies (lazy only if `Message.lazy` is set), returns the result and the next state.
Conversation = Generator[Message, Reply[Tensor], tuple[Reply[Tensor | Lazy], Any]]


@dataclass(frozen=True, repr=False)
class Peers(Described):
    """The ranks that one rank sums over, in order, with their weights."""

    topic: str
    weights: tuple[tuple[int, float], ...]
    receivers: tuple[int, ...] | None = None  # ranks that it sends to; None: those in `weights`, whose Peers are equal
    within: tuple[int, ...] | None = None  # the group in which ranks are numbered, from 0; None: all ranks


class Envelope(NamedTuple):
    """A message and the ranks that it is exchanged between."""

    peers: Peers
    message: Message


# Yields the messages of a round together, receives all replies.
Rounds = Generator[list[Envelope], list[Reply[Tensor]], Any]


def lockstep(exchanges: Iterable[tuple[Peers, Generator[Message, Reply[Tensor], Any]]]) -> Rounds:
    """Advance many exchanges together, so that a round costs one transfer for all of them; returns their results.

    Examples:
        >>> import torch
        >>> from thinwire import Identity
        >>> from thinwire.extend import Message, all_ranks, lockstep
        >>> from thinwire.simulate import Simulated
        >>> def mean(value):
        ...     reply = yield Message(torch.tensor([value]), Identity())
        ...     return reply.reduced.item()
        >>> cluster = Simulated(2)
        >>> cluster.run([lockstep([(all_ranks(2), mean(r)), (all_ranks(2), mean(10 * r))]) for r in (1.0, 2.0)])
        [[1.5, 15.0], [1.5, 15.0]]
        >>> cluster.meters[0].rounds  # two exchanges, in one round
        1
    """
    live = dict(enumerate(exchanges))
    results: list[Any] = [None] * len(live)
    replies: dict[int, Reply[Tensor] | None] = dict.fromkeys(live)
    while live:
        messages: dict[int, Envelope] = {}
        for i, (peers, exchange) in list(live.items()):
            try:
                messages[i] = Envelope(peers, exchange.send(replies.pop(i)))  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                results[i] = end.value
                del live[i]
        if messages:
            replies = dict(zip(messages, (yield list(messages.values())), strict=True))
    return results
