"""What conversations are about: a model's parameters, cut into units."""

from collections import defaultdict
from collections.abc import Collection, Generator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core import Codec, Conversation, Message, Parameter, Reducer, Replica, Reply, State
from ..core.layer_report import Layer
from ..core.lazy import Lazy, copy_, hollow, is_finite, materialize, norm, pieces
from ..core.outcome import Learning, NonFinite
from ..core.precision import working
from ..reducers import as_reducer, dedicated_servers

FUSED, JOINED = "small ones", "joined ones"  # kinds of units of several parameters


class Unit(NamedTuple):
    """What one conversation is about: a parameter, or several flattened together."""

    names: tuple[str, ...]
    reducer: Reducer
    seed: int

    @property
    def key(self) -> str:
        return ",".join(self.names)

    def kind(self, replica: Replica) -> str:
        """Of its layer; tensors that share a conversation are a kind of their own."""
        if len(self.names) == 1:
            return replica.kinds[self.names[0]]
        return FUSED if self.reducer.fuse(()) is None else JOINED

    def gathered(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Its tensors as one: the tensor itself, if there is one only."""
        mine = [tensors[name].detach() for name in self.names]
        return mine[0] if len(mine) == 1 else torch.cat([x.flatten() for x in mine])

    def copied(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The same to work on, or to remember: a copy, in numbers that are fine enough to add up small changes."""
        x = self.gathered(tensors)
        return x.to(working(x.dtype), copy=True)

    def write(self, what: Tensor | Lazy, tensors: Mapping[str, Tensor]) -> None:
        """Write what was agreed on into its tensors."""
        mine = [tensors[name].detach() for name in self.names]
        parts = [what] if len(mine) == 1 else pieces(what, [x.numel() for x in mine])
        for x, part in zip(mine, parts, strict=True):
            copy_(x, part)


class _Outline(NamedTuple):
    """What there is to know of a parameter to find the units."""

    name: str
    kind: str
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    end: str
    is_part: bool  # the ranks of a replica have different parts of it


def units_of(replica: Replica, reducer: Codec | Reducer, fuse_below: int) -> tuple[Unit, ...]:
    """What to talk about, in an order that depends on the model alone."""
    outlined = tuple(
        _Outline(
            name,
            replica.kinds[name],
            p.shape,
            p.dtype,
            p.device,
            replica.ends.get(name, ""),
            _is_part(replica.wholes.get(name)),
        )
        for name, p in replica.parameters.items()
    )
    return _units(outlined, as_reducer(reducer), fuse_below, replica.size)


@lru_cache(maxsize=64)  # strategies ask in every step
def _units(outlined: tuple[_Outline, ...], reducer: Reducer, fuse_below: int, size: int) -> tuple[Unit, ...]:
    groups: dict[Any, list[_Outline]] = defaultdict(list)
    apart = dedicated_servers(reducer)
    trainers = tuple(rank for rank in range(size) if rank not in apart) or (0,)
    for p in outlined:
        suited = reducer.specialize(Parameter(p.name, p.kind, hollow(p.shape, p.dtype), trainers, p.end))
        joint = suited.fuse((p.shape.numel(),)) is not None
        alone = not joint and (suited.needs_shape or p.shape.numel() >= fuse_below)
        groups[suited, p.dtype, p.device, p.name if alone else None, p.is_part].append(p)
    units = []
    # What all ranks of a replica have in full comes first, and by itself: what is said of it must not depend on what
    # each of them has a part of.
    for seed, ((suited, *_), grouped) in enumerate(sorted(groups.items(), key=lambda group: group[0][-1])):
        names, sizes = tuple(p.name for p in grouped), tuple(p.shape.numel() for p in grouped)
        units.append(Unit(names, suited.fuse(sizes) or suited, seed))
    return tuple(units)


def _is_part(whole: Any) -> bool:
    """Whether the ranks of a replica have different parts of a parameter."""
    return whole is not None and any(place.is_shard() for place in whole.placements)


def check_fuse_below(name: str, fuse_below: int) -> None:
    if not (isinstance(fuse_below, int) and fuse_below >= 0):
        raise ValueError(f"{name} fuses tensors below 0 elements or more, not {fuse_below!r}")


def layers_of(
    replica: Replica,
    units: Collection[Unit],
    states: Mapping[str, State],
    dense_bytes: int,
    said: Mapping[str, int],
) -> dict[str, Layer]:
    """What came of each unit so far, by its key; the bytes are a meter's."""
    sizes = {name: p.nbytes for name, p in replica.parameters.items()}
    whole = sum(sizes.values())
    return {
        unit.key: Layer(
            names=unit.names,
            kind=unit.kind(replica),
            elements=sum(replica.parameters[name].numel() for name in unit.names),
            dense_bytes=dense_bytes * sum(sizes[name] for name in unit.names) // whole,
            payload_bytes=said.get(unit.key, 0),
            residual=_unsaid(unit, states),
        )
        for unit in units
    }


def _unsaid(unit: Unit, states: Mapping[str, State]) -> float | None:
    """The norm of what it has not said yet."""
    left = unit.reducer.residual(states[unit.key]) if unit.key in states else None
    return None if left is None else norm(left)


def learning_of(units: Collection[Unit], states: Mapping[str, State]) -> dict[str, Learning]:
    """How well each unit has learned to say less, of those that learn."""
    found = {unit.key: unit.reducer.learning(states[unit.key]) for unit in units if unit.key in states}
    return {key: learning for key, learning in found.items() if learning is not None}


class Checked(NamedTuple):
    """What came of a conversation, and whether all that was said and heard in it was finite."""

    reply: Reply[Tensor | Lazy]
    state: State
    said: bool
    heard: bool


def watched(conversation: Conversation, about: str) -> Generator[Message, Reply[Tensor], Checked]:
    """Hold a conversation, and look at what travels: it is often much smaller than the tensor it is about.

    If something is not finite, this rank says NaN throughout. Every codec passes that on, so whoever hears it knows.
    """
    said = heard = True
    reply: Reply[Tensor] | None = None
    while True:
        try:
            message = conversation.send(reply)  # type: ignore[arg-type]  # None starts it
        except StopIteration as end:
            outcome, state = end.value
            return Checked(outcome, state, said, heard)
        if not is_finite(message.tensor):
            if heard:  # what comes of NaN that was heard is not this rank's own
                said = False
            message = message._replace(tensor=torch.full_like(materialize(message.tensor), torch.nan))
        reply = yield message._replace(about=about)
        heard = heard and is_finite(reply.reduced)


class Received(NamedTuple):
    """What came of a conversation about a unit's parameters."""

    reduced: Tensor
    sent: Tensor | Lazy
    state: State
    lost: NonFinite | None


def spoken(
    unit: Unit, conversation: Conversation, parameters: Mapping[str, Tensor]
) -> Generator[Message, Reply[Tensor], Received]:
    """Hold a conversation about a unit's parameters; if these are not finite somewhere, it counts for nothing."""
    done = yield from watched(conversation, unit.key)
    lost = None
    if not (done.said and done.heard):
        lost = NonFinite(unit.names, () if done.said else not_finite(unit.names, parameters), "parameters")
    return Received(materialize(done.reply.reduced), done.reply.sent, done.state, lost)


def not_finite(names: Sequence[str], tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Those of these tensors that hold NaN or infinity; all of them if none does, as they overflowed together."""
    return tuple(name for name in names if not is_finite(tensors[name])) or tuple(names)
