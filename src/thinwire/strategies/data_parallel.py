from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..codecs import Identity, Sign
from ..core import (
    ALL_REDUCE,
    Codec,
    GradientAveraging,
    Message,
    Parameter,
    Peers,
    Reducer,
    Replica,
    Reply,
    Rounds,
    State,
    Strategy,
    broadcast_from,
    lockstep,
    reduce_to,
)
from ..core.described import parts_of
from ..core.layer_report import Layer
from ..core.outcome import Learning, NonFinite, StepResult
from ..reducers import LeaderTopK, as_reducer, dedicated_servers, servers
from ..topologies import all_ranks
from .units import Unit, check_fuse_below, layers_of, learned_codes, not_finite, units_of, watched


@dataclass(frozen=True, repr=False)
class DataParallel(GradientAveraging):
    """Data-parallel SGD: every replica steps with one gradient, reduced over all ranks."""

    mean_of_all: ClassVar[bool] = True

    reducer: Codec | Reducer
    fuse_below: int = 4096  # in elements: smaller tensors share one conversation, unless their shape matters

    def __post_init__(self) -> None:
        as_reducer(self.reducer)
        check_fuse_below("DataParallel", self.fuse_below)

    def units(self, replica: Replica) -> tuple[Unit, ...]:
        """What is reduced together, in an order that depends on the model alone."""
        return units_of(replica, self.reducer, self.fuse_below)

    def peers(self, size: int) -> Peers:
        """The mean over all ranks that train."""
        return all_ranks(size, without=dedicated_servers(self.reducer))

    def init(self, replica: Replica, units: Collection[Unit] | None = None) -> dict[str, State]:
        """The reducers' states of these units; by default, of all units."""
        return {
            unit.key: unit.reducer.init(unit.gathered(replica.parameters), unit.seed)
            for unit in (self.units(replica) if units is None else units)
        }

    def before_update(self, replica: Replica, state: dict[str, State]) -> Rounds:
        trains = replica.rank not in dedicated_servers(self.reducer)
        used = {name: trains and p.grad is not None for name, p in replica.parameters.items()}
        for name, p in replica.parameters.items():
            if not used[name]:  # on this rank; it may be used on another
                p.grad = torch.zeros_like(p)
        gradients = {name: p.grad for name, p in replica.parameters.items() if p.grad is not None}
        units, peers = self.units(replica), self.peers(replica.size)
        conversations = [(peers, _converse(unit, gradients, state[unit.key], replica.rate)) for unit in units]
        server = min(servers(self.reducer), default=None)  # through which `_used_by_any` is sent, too
        shared_use = [(peers, _used_by_any(used, replica, server))] if replica.size > 1 else []
        results = yield from lockstep([*conversations, *shared_use])
        used_by_any = results.pop() if shared_use else used
        for name, p in replica.parameters.items():
            if not used_by_any[name]:  # the optimizer then skips it, weight decay and momentum included
                p.grad = None
        unused = [unit for unit in units if not any(used_by_any[name] for name in unit.names)]
        result = _step_result(units, results, state)
        return result._replace(state=result.state | {unit.key: state[unit.key] for unit in unused})

    def exchange(
        self,
        units: Collection[Unit],
        gradients: Mapping[str, Tensor],
        size: int,
        state: dict[str, State],
        lr: float | None = None,
    ) -> Rounds:
        """Reduce the gradients of these units in place. Returns a StepResult, with the state of all units."""
        peers = self.peers(size)
        conversations = ((peers, _converse(unit, gradients, state[unit.key], lr)) for unit in units)
        return _step_result(units, (yield from lockstep(conversations)), state)

    @property
    def dedicated_servers(self) -> frozenset[int]:
        return dedicated_servers(self.reducer)

    def settles_after(self, replica: Replica) -> int:
        reducers = [
            part for unit in self.units(replica) for part in parts_of(unit.reducer) if isinstance(part, Reducer)
        ]
        return max((reducer.settles_after for reducer in reducers), default=0)

    def slack(self, replica: Replica) -> int:
        """A lossless method may exceed dense by the padding of shards and by one bit per parameter."""
        dense = all(unit.reducer.lossless for unit in self.units(replica))
        return 64 * replica.size + len(replica.parameters) if dense else 0

    def diagnose(self, replica: Replica, parameters: Collection[Parameter]) -> list[str]:
        used = [unit.reducer for unit in self.units(replica)]
        has_leader = any(isinstance(part, LeaderTopK) for part in parts_of(self))
        found = []
        if has_leader and not any(isinstance(part, LeaderTopK) for reducer in used for part in parts_of(reducer)):
            found.append("LeaderTopK has no effect: this model has no matrix between its first and its last")
        found += super().diagnose(replica, parameters)
        if not as_reducer(self.reducer).lossless and all(reducer.lossless for reducer in used):
            found.append(f"{self.reducer!r} has no effect: every parameter of this model is sent dense")
        return found

    def layers(
        self, replica: Replica, state: dict[str, State], dense_bytes: int, payload: Mapping[str, int]
    ) -> dict[str, Layer]:
        return layers_of(replica, self.units(replica), state, dense_bytes, payload)

    def learning(self, replica: Replica, state: dict[str, State]) -> dict[str, Learning]:
        return learned_codes(self.units(replica), state)


def training_peers(strategy: Strategy, size: int) -> Peers:
    """The mean over all ranks that train, for any strategy."""
    return strategy.peers(size) if isinstance(strategy, DataParallel) else all_ranks(size)


def _step_result(
    units: Collection[Unit], results: list[tuple[State, NonFinite | None]], state: dict[str, State]
) -> StepResult:
    states = {unit.key: new for unit, (new, _) in zip(units, results, strict=True)}
    return StepResult(state | states, tuple(nonfinite for _, nonfinite in results if nonfinite))


def _used_by_any(
    used: dict[str, bool], replica: Replica, server: int | None
) -> Generator[Message, Reply[Tensor], dict[str, bool]]:
    """Which parameters have a gradient on any rank: one bit each, sent through the server if there is one."""
    device = next(iter(replica.parameters.values())).device
    signs = torch.tensor([1.0 if here else -1.0 for here in used.values()], device=device)
    reply = yield Message(signs, Sign(), route=ALL_REDUCE if server is None else reduce_to(server))
    if server is not None:
        reply = yield Message(reply.reduced, Identity(), route=broadcast_from(server))
    unused_below = -1 + 1 / replica.size  # the mean is below this only if every rank sent -1
    return dict(zip(used, (mean > unused_below for mean in reply.reduced.tolist()), strict=True))


def _converse(
    unit: Unit, gradients: Mapping[str, Tensor], state: State, rate: float | None
) -> Generator[Message, Reply[Tensor], tuple[State, NonFinite | None]]:
    """Reduce a unit's gradients in place; returns its next state.

    If a gradient is not finite on some rank, every rank sees NaN in the reply that it receives anyway, and every rank
    keeps its previous state.
    """
    rescaled = state if rate is None else unit.reducer.at_rate(state, rate)
    done = yield from watched(unit.reducer.reduce(unit.gathered(gradients), rescaled), unit.key)
    if not (done.sent_finite and done.received_finite):
        here = () if done.sent_finite else not_finite(unit.names, gradients)
        for name in unit.names:
            gradients[name].fill_(torch.nan)
        return state, NonFinite(unit.names, here)
    unit.write(done.reply.reduced, gradients)
    return done.state, None
