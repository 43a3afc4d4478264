from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Reducer, Replica, Rounds, State, lockstep
from ..core.outcome import StepResult
from ..reducers import as_reducer
from ..topologies import all_ranks
from .independent import Independent
from .units import Unit, check_fuse_below, checked_exchange, units_of


class EASGDState(NamedTuple):
    step: int
    units: dict[str, State]
    centers: dict[str, Tensor]  # the same on all ranks


@dataclass(frozen=True, repr=False)
class EASGD(Independent):
    """Elastic averaging SGD (Zhang et al., 2015): local steps; every `every` steps, replicas and a center variable are
    pulled towards each other.

    The center follows the mean of all replicas. `handle.center()` returns it as a model.
    """

    mean_of_all: ClassVar[bool] = True

    reducer: Codec | Reducer = Identity()  # for the differences between replicas and center
    every: int = 16  # steps between pulls; more: fewer bytes, and replicas explore further
    rate: float = 0.43  # fraction by which the center moves to the mean; a replica moves to the center by rate / ranks
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        as_reducer(self.reducer)
        if not (isinstance(self.every, int) and self.every >= 1):
            raise ValueError(f"EASGD pulls every 1 step or more, not {self.every!r}")
        if not (isinstance(self.rate, int | float) and 0 < self.rate <= 1):
            raise ValueError(f"EASGD takes a rate above 0 and up to 1, not {self.rate!r}")
        check_fuse_below("EASGD", self.fuse_below)

    has_center: ClassVar[bool] = True

    @property
    def period(self) -> int:
        return self.every

    def will_communicate(self, step: int) -> bool:
        return step % self.every == 0

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

    def init(self, replica: Replica) -> EASGDState:
        centers = {unit.key: unit.copied(replica.parameters) for unit in self.units(replica)}
        states = {unit.key: unit.reducer.init(centers[unit.key], unit.seed) for unit in self.units(replica)}
        return EASGDState(0, states, centers)

    def after_update(self, replica: Replica, state: EASGDState) -> Rounds:
        yield from ()
        state = state._replace(step=state.step + 1)
        if state.step % self.every:
            return StepResult(state)
        units, peers = self.units(replica), all_ranks(replica.size)
        here = {unit.key: unit.copied(replica.parameters) for unit in units}
        differences = {key: x - state.centers[key] for key, x in here.items()}
        conversations = [unit.reducer.reduce(differences[unit.key], state.units[unit.key]) for unit in units]
        received = yield from lockstep(
            [
                (peers, checked_exchange(unit, c, replica.parameters))
                for unit, c in zip(units, conversations, strict=True)
            ]
        )
        nonfinite = tuple(mean.nonfinite for mean in received if mean.nonfinite)
        if nonfinite:
            return StepResult(state, nonfinite)
        centers, states = {}, {}
        for unit, mean in zip(units, received, strict=True):
            unit.write(here[unit.key].sub_(differences[unit.key].mul_(self.rate / replica.size)), replica.parameters)
            centers[unit.key] = state.centers[unit.key] + mean.reduced * self.rate
            states[unit.key] = mean.state
        return StepResult(EASGDState(state.step, states, centers))

    def unit_states(self, state: EASGDState) -> dict[str, State]:
        return state.units

    def center(self, replica: Replica, state: EASGDState) -> dict[str, Tensor]:
        """The center variable, by the names of parameters."""
        found = {name: p.detach().clone() for name, p in replica.parameters.items()}
        for unit in self.units(replica):
            unit.write(state.centers[unit.key], found)
        return found
