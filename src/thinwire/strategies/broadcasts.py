"""Uncompressed exchanges: tensors that one rank broadcasts, or that all ranks average."""

from collections.abc import Generator, Mapping

from torch import Tensor

from ..codecs import Identity
from ..core import ALL_REDUCE, Message, Replica, Reply, Rounds, Route, broadcast_from, lockstep
from ..topologies import all_ranks
from .units import Unit, units_of

FUSE_ALL = 2**62  # a limit that no tensor exceeds


def broadcast(tensors: Mapping[str, Tensor], sources: Mapping[str, int], size: int) -> Rounds:
    """Overwrite each tensor by that of its source rank."""
    conversations = []
    for source in sorted(set(sources.values())):
        theirs = {name: x for name, x in tensors.items() if sources.get(name) == source}
        conversations += [_overwritten(unit, tensors, broadcast_from(source)) for unit in _fused(theirs)]
    yield from lockstep([(all_ranks(size), conversation) for conversation in conversations])


def averaged(tensors: Mapping[str, Tensor], size: int) -> Rounds:
    """Overwrite tensors by their mean over all ranks."""
    yield from lockstep([(all_ranks(size), _overwritten(unit, tensors, ALL_REDUCE)) for unit in _fused(tensors)])


def _overwritten(unit: Unit, tensors: Mapping[str, Tensor], route: Route) -> Generator[Message, Reply[Tensor], None]:
    reply = yield Message(unit.gathered(tensors), Identity(), route=route)
    unit.write(reply.reduced, tensors)


def _fused(tensors: Mapping[str, Tensor]) -> tuple[Unit, ...]:
    return units_of(Replica.of(tensors), Identity(), FUSE_ALL)
