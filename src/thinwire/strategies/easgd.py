from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..codecs import Identity
from ..core import Codec, Reducer, Replica, State, Talk, together
from ..core.outcome import Outcome
from ..reducers import as_reducer
from ..topologies import world
from .independent import Independent
from .units import Unit, check_fuse_below, spoken, units_of


class ElasticState(NamedTuple):
    step: int
    units: dict[str, State]
    centres: dict[str, Tensor]  # the same on all ranks


@dataclass(frozen=True, repr=False)
class Elastic(Independent):
    """Each replica takes steps of its own; every so often, it and a common centre are drawn together: EASGD.

    The centre follows the mean of all replicas. `handle.centre()` gives it as a model.
    """

    reducer: Codec | Reducer = Identity()  # for how far replicas are from the centre
    every: int = 16  # steps from one pull to the next
    rate: float = 0.43  # of the way that the centre goes to the mean; a replica goes this over the number of ranks
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        as_reducer(self.reducer)
        if not (isinstance(self.every, int) and self.every >= 1):
            raise ValueError(f"Elastic pulls every 1 step or more, not {self.every!r}")
        if not (isinstance(self.rate, int | float) and 0 < self.rate <= 1):
            raise ValueError(f"Elastic takes a rate above 0 and up to 1, not {self.rate!r}")
        check_fuse_below("Elastic", self.fuse_below)

    @property
    def period(self) -> int:
        return self.every

    def speaks(self, step: int) -> bool:
        return step % self.every == 0

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        return units_of(replica, self.reducer, self.fuse_below)

    def init(self, replica: Replica) -> ElasticState:
        centres = {unit.key: unit.copied(replica.parameters) for unit in self.units(replica)}
        states = {unit.key: unit.reducer.init(centres[unit.key], unit.seed) for unit in self.units(replica)}
        return ElasticState(0, states, centres)

    def after_update(self, replica: Replica, state: ElasticState) -> Talk:
        yield from ()
        state = state._replace(step=state.step + 1)
        if state.step % self.every:
            return Outcome(state)
        units, peers = self.units(replica), world(replica.size)
        here = {unit.key: unit.copied(replica.parameters) for unit in units}
        away = {key: x - state.centres[key] for key, x in here.items()}
        said = [unit.reducer.reduce(away[unit.key], state.units[unit.key]) for unit in units]
        heard = yield from together(
            [(peers, spoken(unit, mean, replica.parameters)) for unit, mean in zip(units, said, strict=True)]
        )
        lost = tuple(mean.lost for mean in heard if mean.lost)
        if lost:
            return Outcome(state, lost)
        centres, states = {}, {}
        for unit, mean in zip(units, heard, strict=True):
            unit.write(here[unit.key].sub_(away[unit.key].mul_(self.rate / replica.size)), replica.parameters)
            centres[unit.key] = state.centres[unit.key] + mean.reduced * self.rate
            states[unit.key] = mean.state
        return Outcome(ElasticState(state.step, states, centres))

    def remembered(self, state: ElasticState) -> dict[str, State]:
        return state.units

    def centre(self, replica: Replica, state: ElasticState) -> dict[str, Tensor]:
        """What replicas are drawn to, by the names of parameters."""
        found = {name: p.detach().clone() for name, p in replica.parameters.items()}
        for unit in self.units(replica):
            unit.write(state.centres[unit.key], found)
        return found
