"""A reference for attached models: runs a strategy for all ranks in one process, step by step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thinwire.core import GradientAveraging, Overlapping, Replica, Rounds, Strategy
from thinwire.core.layer_report import Layer
from thinwire.core.outcome import Learning, NonFinite
from thinwire.reducers import uses_learning_rate
from thinwire.runtime.learned_code_guard import LearnedCodeGuard
from thinwire.runtime.nonfinite import NonFiniteError, problem_of
from thinwire.strategies import Consensus, check_placed, consensus, training_peers
from thinwire.strategies.ab_training import LowRankLayer
from thinwire.transports import Meter, Simulated


class ReferenceRun:
    """Runs a strategy's exchanges for all replicas, with the bits and byte counts that real processes have.

    In each step, call `before_update()` after all replicas have computed gradients, and `after_update()` after all
    optimizers have stepped.
    """

    def __init__(self, strategy: Strategy, replicas: Sequence[Replica]) -> None:
        check_placed(strategy, len(replicas), replicas[0].hosts)
        self.strategy, self.replicas = strategy, list(replicas)
        self.transport = Simulated(len(replicas))
        self.states: list[Any] = [strategy.init(replica) for replica in replicas]
        self.meters: list[Meter] = self.transport.meters
        self._dense_bytes = sum(p.nbytes for p in replicas[0].parameters.values())
        self._in_flight: tuple[list[Any], Simulated] | None = None
        self._guard = LearnedCodeGuard(strategy)

    @torch.no_grad()
    def before_update(self, losses: Sequence[float] | None = None, rate: float | None = None) -> None:
        """Exchange before the update. Pass `losses` to strategies that need them and `rate` for by_rate=True."""
        if losses is not None:
            self.replicas = [r._replace(loss=float(loss)) for r, loss in zip(self.replicas, losses, strict=True)]
        if self.strategy.needs_loss and self.replicas[0].loss is None:
            raise ValueError(f"{self.strategy!r} needs the losses: before_update(losses)")
        if rate is not None:
            self.replicas = [replica._replace(rate=rate) for replica in self.replicas]
        if uses_learning_rate(self.strategy) and self.strategy.gradient_averaging is None:
            raise ValueError(f"by_rate=True is for gradients, and {self.strategy!r} exchanges parameters")
        if uses_learning_rate(self.strategy) and self.replicas[0].rate is None:
            raise ValueError(f"{self.strategy!r} needs the learning rate: before_update(rate=...)")
        for meter in self.meters:
            meter.count_dense(self._dense_bytes, len(self.replicas))
        averaging = self.strategy.gradient_averaging
        if averaging is not None and not averaging.dedicated_servers:  # DDP has no dedicated servers
            self._exchange(averaging)
        else:
            self._run([self.strategy.before_update(r, s) for r, s in self._ranks()])

    @torch.no_grad()
    def after_update(self) -> None:
        self._run([self.strategy.after_update(r, s) for r, s in self._ranks()])
        for meter in self.meters:
            meter.steps += 1
        self._guard.end_step(self.strategy, self.replicas[0], self.states[0], *self.meters)
        self.replicas = [replica._replace(loss=None) for replica in self.replicas]
        strategy, steps = self.strategy.overlapping, self.meters[0].steps
        if strategy is not None:
            if strategy.lands(steps):
                self.land()
            if strategy.launches(steps):
                self._launch(strategy)

    @torch.no_grad()
    def land(self) -> None:
        """Apply the messages in flight."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None:
            return
        strategy, (results, transport) = self.strategy.overlapping, in_flight
        assert strategy is not None, "only overlapping strategies have messages in flight"
        for meter, counted in zip(self.meters, transport.meters, strict=True):
            meter.add(counted)
        landed = [strategy.land(r, s, result) for (r, s), result in zip(self._ranks(), results, strict=True)]
        self.states = [state for state, _ in landed]
        _raise_nonfinite(problem for _, problems in landed for problem in problems)

    @torch.no_grad()
    def consensus(self, buffers: Sequence[Mapping[str, Tensor]] | None = None) -> Consensus:
        """The mean of all replicas (and of `buffers`), the same on all ranks, and the consensus distance."""
        self.land()
        strategy, size = self.strategy, len(self.replicas)
        buffers_by_rank = buffers or [{} for _ in self.replicas]
        transport = Simulated(size)
        peers = training_peers(strategy, size)
        exchanges = [
            consensus(strategy.effective(r), b, strategy.weight_of(s), peers)
            for (r, s), b in zip(self._ranks(), buffers_by_rank, strict=True)
        ]
        found: Consensus = transport.run(exchanges)[0]
        for meter, counted in zip(self.meters, transport.meters, strict=True):
            meter.average_bytes += counted.link_bytes
            meter.consensus = found.distance
        return found

    def leader(self) -> int | None:
        """The rank with the lowest loss, for strategies that choose one."""
        losses = [loss for state in self.states if (loss := self.strategy.loss_of(state)) is not None]
        return losses.index(min(losses)) if losses else None

    def center(self) -> Mapping[str, Tensor] | None:
        """The center variable, for strategies that have one."""
        return self.strategy.center(self.replicas[0], self.states[0])

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks, for strategies with groups."""
        first = self.replicas[0]
        return self.strategy.groups_of(first.size, first.hosts)

    def factored(self, rank: int = 0) -> dict[str, LowRankLayer]:
        """The layers of a rank's model that the strategy factors, by name."""
        factoring = self.strategy.factoring
        return {} if factoring is None else dict(factoring.factored(self.replicas[rank]))

    def learning(self) -> dict[str, Learning]:
        """The error of learned codes after the last step, and whether they are being trained."""
        return self._guard.by_unit

    def layers(self, rank: int = 0) -> dict[str, Layer]:
        """A rank's payload bytes and residual per layer."""
        meter = self.meters[rank]
        return self.strategy.layers(self.replicas[rank], self.states[rank], meter.dense_bytes, meter.payload_by_unit)

    def _exchange(self, strategy: GradientAveraging) -> None:
        """Reduce gradients as under DDP, where an unused parameter has a zero gradient."""
        for replica in self.replicas:
            for p in replica.parameters.values():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        units, size = strategy.units(self.replicas[0]), len(self.replicas)
        gradients = [
            {name: p.grad for name, p in replica.parameters.items() if p.grad is not None} for replica in self.replicas
        ]
        rate = self.replicas[0].rate
        self._run([strategy.exchange(units, g, size, s, rate) for g, s in zip(gradients, self.states, strict=True)])

    def _launch(self, strategy: Overlapping) -> None:
        launched = [strategy.launch(r, s) for r, s in self._ranks()]
        self.states = [state for state, _ in launched]
        transport = Simulated(len(self.replicas))  # the bytes are added to the meters on landing
        self._in_flight = transport.run([exchange for _, exchange in launched]), transport

    def _run(self, exchanges: list[Rounds]) -> None:
        results = self.transport.run(exchanges)
        self.states = [result.state for result in results]
        _raise_nonfinite(problem for result in results for problem in result.nonfinite)

    def _ranks(self) -> list[tuple[Replica, Any]]:
        return list(zip(self.replicas, self.states, strict=True))


def _raise_nonfinite(problems: Iterable[NonFinite]) -> None:
    # Prefer the report of a rank with non-finite values of its own: the others know the names of the message only.
    first = max(problems, key=lambda problem: bool(problem.here), default=None)
    if first is not None:
        raise NonFiniteError(f"{problem_of([first])}: the run has diverged")
