"""Tensors that one rank tells the others as they are, or that all average as they are."""

from collections.abc import Generator, Mapping

from torch import Tensor

from ..codecs import Identity
from ..core import Message, Replica, Reply, Rounds, lockstep
from ..topologies import all_ranks
from .units import Unit, units_of

WHOLE = 2**62  # fuses everything


def told(tensors: Mapping[str, Tensor], sources: Mapping[str, int], size: int) -> Rounds:
    """Overwrite tensors by those of the rank that knows each."""
    talks = []
    for source in sorted(set(sources.values())):
        theirs = {name: x for name, x in tensors.items() if sources.get(name) == source}
        talks += [_overwritten(unit, tensors, source) for unit in _fused(theirs)]
    yield from lockstep([(all_ranks(size), talk) for talk in talks])


def averaged(tensors: Mapping[str, Tensor], size: int) -> Rounds:
    """Overwrite tensors by their means over all ranks."""
    yield from lockstep([(all_ranks(size), _overwritten(unit, tensors, None)) for unit in _fused(tensors)])


def _overwritten(
    unit: Unit, tensors: Mapping[str, Tensor], source: int | None
) -> Generator[Message, Reply[Tensor], None]:
    reply = yield Message(unit.gathered(tensors), Identity(), source=source)
    unit.write(reply.reduced, tensors)


def _fused(tensors: Mapping[str, Tensor]) -> tuple[Unit, ...]:
    return units_of(Replica(tensors, dict.fromkeys(tensors, "other"), 0, 1), Identity(), WHOLE)
