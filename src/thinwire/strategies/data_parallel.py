from collections import defaultdict
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..codecs import Sign
from ..core import (
    Codec,
    Conversation,
    Message,
    Parameter,
    Reducer,
    Replica,
    Reply,
    State,
    Strategy,
    Talk,
    together,
)
from ..lazy import Lazy, copy_, dense, is_finite, norm, outline
from ..outcome import Lost, Outcome
from ..reducers import as_reducer
from ..topologies import world
from .layer import Layer

FUSED = "small ones"


class Unit(NamedTuple):
    """What one conversation is about: a parameter, or several small ones flattened together."""

    names: tuple[str, ...]
    reducer: Reducer
    seed: int

    @property
    def key(self) -> str:
        return ",".join(self.names)

    def kind(self, replica: Replica) -> str:
        """Of its layer; small tensors that share a conversation are a kind of their own."""
        return replica.kinds[self.names[0]] if len(self.names) == 1 else FUSED


@dataclass(frozen=True, repr=False)
class DataParallel(Strategy):
    """Every replica steps with the same gradient, reduced from all."""

    reducer: Codec | Reducer
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        as_reducer(self.reducer)
        if not (isinstance(self.fuse_below, int) and self.fuse_below >= 0):
            raise ValueError(f"DataParallel fuses tensors below 0 elements or more, not {self.fuse_below!r}")

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        """What to talk about, in an order that depends on the model alone."""
        reducer = as_reducer(self.reducer)
        groups: dict[Any, list[str]] = defaultdict(list)
        for name, p in replica.parameters.items():
            suited = reducer.suited(Parameter(name, replica.kinds[name], outline(p), replica.size))
            alone = suited.shaped or p.numel() >= self.fuse_below
            groups[suited, p.dtype, p.device, name if alone else None].append(name)
        return tuple(Unit(tuple(names), key[0], seed) for seed, (key, names) in enumerate(groups.items()))

    def init(self, replica: Replica, units: Collection[Unit] | None = None) -> dict[str, State]:
        """What is remembered of these units, by default of all."""
        return {
            unit.key: unit.reducer.init(_flattened([replica.parameters[n].detach() for n in unit.names]), unit.seed)
            for unit in (self.units(replica) if units is None else units)
        }

    def before_update(self, replica: Replica, state: dict[str, State]) -> Talk:
        used = {name: p.grad is not None for name, p in replica.parameters.items()}
        for p in replica.parameters.values():
            if p.grad is None:  # unused on this rank; another may have used it
                p.grad = torch.zeros_like(p)
        gradients = {name: p.grad for name, p in replica.parameters.items() if p.grad is not None}
        units, peers = self.units(replica), world(replica.size)
        talks = [(peers, _converse(unit, gradients, state[unit.key])) for unit in units]
        *outcomes, used_by_any = yield from together([*talks, (peers, _used_by_any(used, replica))])
        for name, p in replica.parameters.items():
            if not used_by_any[name]:  # an optimizer leaves it alone then, with its weight decay and momentum
                p.grad = None
        unused = [unit for unit in units if not any(used_by_any[name] for name in unit.names)]
        outcome = _outcome(units, outcomes, state)
        return outcome._replace(state=outcome.state | {unit.key: state[unit.key] for unit in unused})

    def exchange(
        self, units: Collection[Unit], gradients: Mapping[str, Tensor], size: int, state: dict[str, State]
    ) -> Talk:
        """Reduce the gradients of these units in place. Returns an Outcome, with the state of all units."""
        talks = ((world(size), _converse(unit, gradients, state[unit.key])) for unit in units)
        return _outcome(units, (yield from together(talks)), state)

    def layers(
        self, replica: Replica, state: dict[str, State], dense_bytes: int, said: Mapping[str, int]
    ) -> dict[str, Layer]:
        """What came of each unit so far, by its key; the bytes are a meter's."""
        sizes = {name: p.nbytes for name, p in replica.parameters.items()}
        whole = sum(sizes.values())
        layers = {}
        for unit in self.units(replica):
            unsaid = unit.reducer.unsaid(state[unit.key])
            layers[unit.key] = Layer(
                names=unit.names,
                kind=unit.kind(replica),
                elements=sum(replica.parameters[name].numel() for name in unit.names),
                dense_bytes=dense_bytes * sum(sizes[name] for name in unit.names) // whole,
                payload_bytes=said.get(unit.key, 0),
                residual=None if unsaid is None else norm(unsaid),
            )
        return layers


def _outcome(units: Collection[Unit], outcomes: list[tuple[State, Lost | None]], state: dict[str, State]) -> Outcome:
    states = {unit.key: new for unit, (new, _) in zip(units, outcomes, strict=True)}
    return Outcome(state | states, tuple(lost for _, lost in outcomes if lost))


def _used_by_any(used: dict[str, bool], replica: Replica) -> Generator[Message, Reply[Tensor], dict[str, bool]]:
    """Which parameters got a gradient on any rank, at a bit each."""
    device = next(iter(replica.parameters.values())).device
    reply = yield Message(torch.tensor([1.0 if here else -1.0 for here in used.values()], device=device), Sign())
    nobody = -1 + 1 / replica.size  # the mean of what all say is below this only if all say -1
    return dict(zip(used, (mean > nobody for mean in reply.reduced.tolist()), strict=True))


def _converse(
    unit: Unit, gradients: Mapping[str, Tensor], state: State
) -> Generator[Message, Reply[Tensor], tuple[State, Lost | None]]:
    """Reduce a unit's gradients in place; returns its next state.

    If a gradient is not finite, this rank says NaN throughout. Every codec passes that on, so all ranks hear of it in
    the reply that they wait for anyway, and all of them go on from the state they had.
    """
    mine = [gradients[name] for name in unit.names]
    reply, new, said, heard = yield from _watched(unit.reducer.reduce(_flattened(mine), state), unit.key)
    if not (said and heard):
        here = () if said else tuple(n for n in unit.names if not is_finite(gradients[n])) or unit.names
        for gradient in mine:
            gradient.fill_(torch.nan)
        return state, Lost(unit.names, here)
    pieces = [reply.reduced] if len(mine) == 1 else torch.split(dense(reply.reduced), [g.numel() for g in mine])
    for gradient, piece in zip(mine, pieces, strict=True):
        copy_(gradient, piece)
    return new, None


def _watched(
    conversation: Conversation, about: str
) -> Generator[Message, Reply[Tensor], tuple[Reply[Tensor | Lazy], State, bool, bool]]:
    """Hold a conversation; tells also whether all that was said in it, and all that was heard, was finite.

    What travels is looked at, not the gradient: it is often much smaller, and no gradient that is not finite gets by.
    """
    said = heard = True
    reply: Reply[Tensor] | None = None
    while True:
        try:
            message = conversation.send(reply)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            return *end.value, said, heard
        if not is_finite(message.tensor):
            if heard:  # what comes of NaN that was heard is not this rank's own
                said = False
            message = message._replace(tensor=torch.full_like(dense(message.tensor), torch.nan))
        reply = yield message._replace(about=about)
        heard = heard and is_finite(reply.reduced)


def _flattened(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat([x.flatten() for x in tensors])
