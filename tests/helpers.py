"""Helpers for tests: random tensors, and reducers and messages on simulated ranks."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thinwire import DataParallel, inspect
from thinwire.core import Rounds, State
from thinwire.core.lazy import materialize
from thinwire.core.states import plain
from thinwire.extend import Message, Parameter, Peers, Reducer, Replica, Reply, all_ranks, lockstep
from thinwire.simulate import Simulated


class ReducerStep(NamedTuple):
    """The result of one step of a reducer, by rank."""

    replies: list[Reply[Tensor]]
    states: list[Any]
    messages: list[list[Message]]  # those that each rank sent
    meters: list[inspect.Meter]

    @property
    def reduced(self) -> Tensor:
        """The reduced tensor on rank 0."""
        reduced: Tensor = self.replies[0].reduced
        return reduced


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed numbers; the global generator is not used."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_rank(ranks: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """A different tensor for every rank."""
    return [random(*shape, seed=1000 * seed + rank + 1, dtype=dtype) for rank in range(ranks)]


def parameter(like: Tensor, name: str = "weight", kind: str = "dense") -> Parameter:
    return Parameter(name, kind, like.to("meta"))


def started(reducer: Reducer, like: Tensor, ranks: int, seed: int = 7) -> tuple[Reducer, list[Any]]:
    """The reducer specialized for a tensor like this, and its initial state on every rank."""
    specialized = reducer.specialize(parameter(like)._replace(ranks=tuple(range(ranks))))
    return specialized, [specialized.init(torch.zeros_like(like), seed) for _ in range(ranks)]


def step(reducer: Reducer, xs: Sequence[Tensor], states: Sequence[Any], peers: Peers | None = None) -> ReducerStep:
    """Reduce one tensor per rank."""
    peers = peers or all_ranks(len(xs))
    messages: list[list[Message]] = [[] for _ in xs]
    transport = Simulated(len(xs))
    exchanges = [
        lockstep([(peers, recorded(reducer.reduce(x, state), sent.append))])
        for x, state, sent in zip(xs, states, messages, strict=True)
    ]
    results = [result for (result,) in transport.run(exchanges)]
    replies = [Reply(materialize(reply.reduced), materialize(reply.sent)) for reply, _ in results]
    new = [state for _, state in results]
    return ReducerStep(replies, new, messages, transport.meters)


def exchange_messages(
    messages: Sequence[Message], peers: Peers | None = None
) -> tuple[list[Reply[Tensor]], list[inspect.Meter]]:
    """One round in which every rank sends one message."""
    transport = Simulated(len(messages))
    peers = peers or all_ranks(len(messages))

    def once(message: Message) -> Generator[Message, Reply[Tensor], Reply[Tensor]]:
        return (yield message)

    replies = transport.run([lockstep([(peers, once(message))]) for message in messages])
    return [reply for (reply,) in replies], transport.meters


def recorded(conversation: Any, record: Callable[[Message], None]) -> Any:
    """The same conversation; `record` is called with every message."""
    reply = None
    while True:
        try:
            message = conversation.send(reply)
        except StopIteration as end:
            return end.value
        record(message)
        reply = yield message


def same_bits(a: Any, b: Any) -> bool:
    """Whether two tensors, or two states made of them, are equal to the bit; a NaN equals itself."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


def same_states(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(same_bits(plain(x), plain(y)) for x, y in zip(a, b, strict=True))


def _bytes(x: Tensor) -> Tensor:
    return x.detach().contiguous().view(-1).view(torch.uint8)


def exchange_gradients(strategy: DataParallel, replica: Replica, state: dict[str, State]) -> Rounds:
    """The rounds that reduce the gradients of one replica, as under DDP."""
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in replica.parameters.items()}
    return strategy.exchange(strategy.units(replica), gradients, replica.size, state)
