from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Reducer, Replica, Rounds, State, lockstep
from ..core.outcome import StepResult
from ..reducers import as_reducer
from ..topologies import all_ranks
from .independent import Independent
from .units import Unit, check_fuse_below, spoken, units_of


class EASGDState(NamedTuple):
    step: int
    units: dict[str, State]
    centers: dict[str, Tensor]  # the same on all ranks


@dataclass(frozen=True, repr=False)
class EASGD(Independent):
    """Each replica takes steps of its own; every so often, it and a common center are drawn together: EASGD.

    The center follows the mean of all replicas. `handle.center()` gives it as a model.
    """

    reducer: Codec | Reducer = Identity()  # for how far replicas are from the center
    every: int = 16  # steps from one pull to the next
    rate: float = 0.43  # of the way that the center goes to the mean; a replica goes this over the number of ranks
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
        away = {key: x - state.centers[key] for key, x in here.items()}
        said = [unit.reducer.reduce(away[unit.key], state.units[unit.key]) for unit in units]
        heard = yield from lockstep(
            [(peers, spoken(unit, mean, replica.parameters)) for unit, mean in zip(units, said, strict=True)]
        )
        lost = tuple(mean.lost for mean in heard if mean.lost)
        if lost:
            return StepResult(state, lost)
        centers, states = {}, {}
        for unit, mean in zip(units, heard, strict=True):
            unit.write(here[unit.key].sub_(away[unit.key].mul_(self.rate / replica.size)), replica.parameters)
            centers[unit.key] = state.centers[unit.key] + mean.reduced * self.rate
            states[unit.key] = mean.state
        return StepResult(EASGDState(state.step, states, centers))

    def unit_states(self, state: EASGDState) -> dict[str, State]:
        return state.units

    def center(self, replica: Replica, state: EASGDState) -> dict[str, Tensor]:
        """What replicas are drawn to, by the names of parameters."""
        found = {name: p.detach().clone() for name, p in replica.parameters.items()}
        for unit in self.units(replica):
            unit.write(state.centers[unit.key], found)
        return found
