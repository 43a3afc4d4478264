"""A model's parameters, grouped into units: one conversation each."""

from collections import defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Message, Parameter, Reducer, Replica, Reply, State
from ..core.layer_report import Layer
from ..core.lazy import Lazy, copy_, is_finite, materialize, norm, outline, pieces
from ..core.outcome import Learning, NonFinite
from ..core.precision import working
from ..reducers import as_reducer, dedicated_servers, learning_of

FUSED, JOINED = "small ones", "joined ones"  # kinds of fused units: of small tensors, and by `Reducer.fuse`


class Unit(NamedTuple):
    """What is reduced in one conversation: a parameter, or several flattened into one tensor."""

    names: tuple[str, ...]
    reducer: Reducer
    seed: int

    @property
    def key(self) -> str:
        return ",".join(self.names)

    def kind(self, replica: Replica) -> str:
        """The kind of its layer; units of several parameters have a kind of their own."""
        if len(self.names) == 1:
            return replica.descriptions[self.names[0]].kind
        return FUSED if self.reducer.fuse(()) is None else JOINED

    def gathered(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Its tensors as one: flattened and concatenated, or the tensor itself if there is only one."""
        mine = [tensors[name].detach() for name in self.names]
        return mine[0] if len(mine) == 1 else torch.cat([x.flatten() for x in mine])

    def copied(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Like `gathered`, but a copy, in a dtype precise enough to accumulate small changes."""
        x = self.gathered(tensors)
        return x.to(working(x.dtype), copy=True)

    def write(self, what: Tensor | Lazy, tensors: Mapping[str, Tensor]) -> None:
        """Write the reduced tensor into its tensors."""
        mine = [tensors[name].detach() for name in self.names]
        parts = [what] if len(mine) == 1 else pieces(what, [x.numel() for x in mine])
        for x, part in zip(mine, parts, strict=True):
            copy_(x, part)


def units_of(replica: Replica, reducer: Codec | Reducer, fuse_below: int) -> tuple[Unit, ...]:
    """What is reduced together, in an order that depends on the model alone."""
    devices = tuple(p.device for p in replica.parameters.values())
    descriptions = tuple(replica.descriptions[name]._replace(like=outline(p)) for name, p in replica.parameters.items())
    return _units(descriptions, devices, as_reducer(reducer), fuse_below, replica.size)


@lru_cache(maxsize=64)  # strategies call it in every step
def _units(
    descriptions: tuple[Parameter, ...],
    devices: tuple[torch.device, ...],
    reducer: Reducer,
    fuse_below: int,
    size: int,
) -> tuple[Unit, ...]:
    groups: dict[Any, list[Parameter]] = defaultdict(list)
    dedicated = dedicated_servers(reducer)
    trainers = tuple(rank for rank in range(size) if rank not in dedicated) or (0,)
    for parameter, device in zip(descriptions, devices, strict=True):
        specialized = reducer.specialize(parameter._replace(ranks=trainers))
        elements = parameter.like.numel()
        fusible = specialized.fuse((elements,)) is not None
        alone = not fusible and (specialized.needs_shape or elements >= fuse_below)
        own = parameter.name if alone else None
        groups[specialized, parameter.like.dtype, device, own, parameter.sharded].append(parameter)
    units = []
    # Unsharded parameters come first, in separate units: their messages must not depend on the shards, which differ
    # between the ranks of a replica.
    for seed, ((specialized, *_), grouped) in enumerate(sorted(groups.items(), key=lambda group: group[0][-1])):
        names, sizes = tuple(p.name for p in grouped), tuple(p.like.numel() for p in grouped)
        units.append(Unit(names, specialized.fuse(sizes) or specialized, seed))
    return tuple(units)


def check_fuse_below(name: str, fuse_below: int) -> None:
    if not (isinstance(fuse_below, int) and fuse_below >= 0):
        raise ValueError(f"{name} fuses tensors below 0 elements or more, not {fuse_below!r}")


def layers_of(
    replica: Replica,
    units: Collection[Unit],
    states: Mapping[str, State],
    dense_bytes: int,
    payload: Mapping[str, int],
) -> dict[str, Layer]:
    """A report per unit, by its key; `payload` has a meter's bytes."""
    sizes = {name: p.nbytes for name, p in replica.parameters.items()}
    total = sum(sizes.values())
    return {
        unit.key: Layer(
            names=unit.names,
            kind=unit.kind(replica),
            elements=sum(replica.parameters[name].numel() for name in unit.names),
            dense_bytes=dense_bytes * sum(sizes[name] for name in unit.names) // total,
            payload_bytes=payload.get(unit.key, 0),
            residual=_residual_norm(unit, states),
        )
        for unit in units
    }


def _residual_norm(unit: Unit, states: Mapping[str, State]) -> float | None:
    """The norm of its residual; None if it keeps none."""
    residual = unit.reducer.residual(states[unit.key]) if unit.key in states else None
    return None if residual is None else norm(residual)


def learned_codes(units: Collection[Unit], states: Mapping[str, State]) -> dict[str, Learning]:
    """The state of each learned code, by its unit's key."""
    found = {unit.key: learning_of(unit.reducer, states[unit.key]) for unit in units if unit.key in states}
    return {key: learning for key, learning in found.items() if learning is not None}


class Checked(NamedTuple):
    """The result of a conversation, and whether all that was sent and received in it was finite."""

    reply: Reply[Tensor | Lazy]
    state: State
    sent_finite: bool
    received_finite: bool


def watched(conversation: Conversation, unit: str) -> Generator[Message, Reply[Tensor], Checked]:
    """Run a conversation and check its messages for NaN and infinity; messages are often much smaller than the tensor.

    If a message is not finite, this rank sends NaN in all its entries. Every codec transmits that, so receivers see it.
    """
    sent_finite = received_finite = True
    reply: Reply[Tensor] | None = None
    while True:
        try:
            message = conversation.send(reply)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            result, state = end.value
            return Checked(result, state, sent_finite, received_finite)
        if not is_finite(message.tensor):
            if received_finite:  # else it may come from a received NaN
                sent_finite = False
            message = message._replace(tensor=torch.full_like(materialize(message.tensor), torch.nan))
        reply = yield message._replace(unit=unit)
        received_finite = received_finite and is_finite(reply.reduced)


class Received(NamedTuple):
    """The result of a conversation about a unit's parameters."""

    reduced: Tensor
    sent: Tensor | Lazy
    state: State
    nonfinite: NonFinite | None


def checked_exchange(
    unit: Unit, conversation: Conversation, parameters: Mapping[str, Tensor]
) -> Generator[Message, Reply[Tensor], Received]:
    """Run a conversation about a unit's parameters; `nonfinite` is set if they are not finite on some rank."""
    done = yield from watched(conversation, unit.key)
    nonfinite = None
    if not (done.sent_finite and done.received_finite):
        nonfinite = NonFinite(unit.names, () if done.sent_finite else not_finite(unit.names, parameters), "parameters")
    return Received(materialize(done.reply.reduced), done.reply.sent, done.state, nonfinite)


def not_finite(names: Sequence[str], tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The names of tensors with NaN or infinity; all names if there are none, as then a sum overflowed."""
    return tuple(name for name in names if not is_finite(tensors[name])) or tuple(names)
