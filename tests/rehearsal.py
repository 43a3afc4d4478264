"""A reference for attached trainings: a strategy around the updates of all ranks, step by step in one process."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thinwire.core import GradientAveraging, Overlapping, Replica, Rounds, Strategy
from thinwire.core.layer_report import Layer
from thinwire.core.outcome import Learning, NonFinite
from thinwire.reducers import goes_by_rate
from thinwire.runtime.learned_code_guard import LearnedCodeGuard
from thinwire.runtime.nonfinite import NonFiniteError, problem_of
from thinwire.strategies import Consensus, all_who_train, check_placed, consensus
from thinwire.strategies.ab_training import LowRankLayer
from thinwire.transports import Meter, Simulated


class Rehearsal:
    """Runs what ranks say around their updates: the same bits, and the same bytes, as between real processes.

    For each step, call `before_update()` when all replicas have gradients, and `after_update()` when all optimizers
    have made their step.
    """

    def __init__(self, strategy: Strategy, replicas: Sequence[Replica]) -> None:
        check_placed(strategy, len(replicas), replicas[0].hosts)
        self.strategy, self.replicas = strategy, list(replicas)
        self.sender = Simulated(len(replicas))
        self.states: list[Any] = [strategy.init(replica) for replica in replicas]
        self.meters: list[Meter] = self.sender.meters
        self._dense_bytes = sum(p.nbytes for p in replicas[0].parameters.values())
        self._under_way: tuple[list[Any], Simulated] | None = None
        self._guard = LearnedCodeGuard(strategy)

    @torch.no_grad()
    def before_update(self, losses: Sequence[float] | None = None, rate: float | None = None) -> None:
        """All have gradients; and losses, for strategies that choose by them; and a learning rate, for by_rate=True."""
        if losses is not None:
            self.replicas = [r._replace(loss=float(loss)) for r, loss in zip(self.replicas, losses, strict=True)]
        if self.strategy.needs_loss and self.replicas[0].loss is None:
            raise ValueError(f"{self.strategy!r} needs to know the losses: before_update(losses)")
        if rate is not None:
            self.replicas = [replica._replace(rate=rate) for replica in self.replicas]
        if goes_by_rate(self.strategy) and self.strategy.gradient_averaging is None:
            raise ValueError(f"by_rate=True is for gradients, and {self.strategy!r} speaks of parameters")
        if goes_by_rate(self.strategy) and self.replicas[0].rate is None:
            raise ValueError(f"{self.strategy!r} needs to know the learning rate: before_update(rate=...)")
        for meter in self.meters:
            meter.count_dense(self._dense_bytes, len(self.replicas))
        averaging = self.strategy.gradient_averaging
        if averaging is not None and not averaging.dedicated_servers:  # which DDP does not have
            self._exchange(averaging)
        else:
            self._hold([self.strategy.before_update(r, s) for r, s in self._ranks()])

    @torch.no_grad()
    def after_update(self) -> None:
        self._hold([self.strategy.after_update(r, s) for r, s in self._ranks()])
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
        """Finish what is on its way."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        strategy, (arrived, aside) = self.strategy.overlapping, under_way
        assert strategy is not None, "others have nothing in flight"
        for meter, counted in zip(self.meters, aside.meters, strict=True):
            meter.add(counted)
        landed = [strategy.land(r, s, what) for (r, s), what in zip(self._ranks(), arrived, strict=True)]
        self.states = [state for state, _ in landed]
        _check(lost for _, some in landed for lost in some)

    @torch.no_grad()
    def consensus(self, buffers: Sequence[Mapping[str, Tensor]] | None = None) -> Consensus:
        """The mean of all replicas (and of buffers), which all ranks hear alike, and how far they are from it."""
        self.land()
        strategy, size = self.strategy, len(self.replicas)
        there = buffers or [{} for _ in self.replicas]
        aside = Simulated(size)
        peers = all_who_train(strategy, size)
        talks = [
            consensus(strategy.effective(r), b, strategy.weight_of(s), peers)
            for (r, s), b in zip(self._ranks(), there, strict=True)
        ]
        found: Consensus = aside.run(talks)[0]
        for meter, took in zip(self.meters, aside.meters, strict=True):
            meter.average_bytes += took.link_bytes
            meter.consensus = found.distance
        return found

    def leader(self) -> int | None:
        """The rank with the lowest loss, for strategies that choose one."""
        losses = [loss for state in self.states if (loss := self.strategy.loss_of(state)) is not None]
        return losses.index(min(losses)) if losses else None

    def center(self) -> Mapping[str, Tensor] | None:
        """What replicas are drawn to, for strategies that have such a center."""
        return self.strategy.center(self.replicas[0], self.states[0])

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups that ranks are in, for strategies that have several."""
        first = self.replicas[0]
        return self.strategy.groups_of(first.size, first.hosts)

    def factored(self, rank: int = 0) -> dict[str, LowRankLayer]:
        """What those layers of a rank's model are that are factored at times."""
        factoring = self.strategy.factoring
        return {} if factoring is None else dict(factoring.factored(self.replicas[rank]))

    def learning(self) -> dict[str, Learning]:
        """How far off learned codes were after the last step, and whether they are being learned."""
        return self._guard.by_unit

    def layers(self, rank: int = 0) -> dict[str, Layer]:
        """What a rank has said of each layer, and how much it has not."""
        meter = self.meters[rank]
        return self.strategy.layers(self.replicas[rank], self.states[rank], meter.dense_bytes, meter.payload_by_unit)

    def _exchange(self, strategy: GradientAveraging) -> None:
        """As under DDP: of a parameter that a rank did not use, its gradient is zero."""
        for replica in self.replicas:
            for p in replica.parameters.values():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        units, size = strategy.units(self.replicas[0]), len(self.replicas)
        gradients = [
            {name: p.grad for name, p in replica.parameters.items() if p.grad is not None} for replica in self.replicas
        ]
        rate = self.replicas[0].rate
        self._hold([strategy.exchange(units, g, size, s, rate) for g, s in zip(gradients, self.states, strict=True)])

    def _launch(self, strategy: Overlapping) -> None:
        launched = [strategy.launch(r, s) for r, s in self._ranks()]
        self.states = [state for state, _ in launched]
        aside = Simulated(len(self.replicas))  # all is counted as it lands
        self._under_way = aside.run([talk for _, talk in launched]), aside

    def _hold(self, talks: list[Rounds]) -> None:
        outcomes = self.sender.run(talks)
        self.states = [outcome.state for outcome in outcomes]
        _check(lost for outcome in outcomes for lost in outcome.nonfinite)

    def _ranks(self) -> list[tuple[Replica, Any]]:
        return list(zip(self.replicas, self.states, strict=True))


def _check(lost: Iterable[NonFinite]) -> None:
    # Who only heard of it knows no more than what the message was about.
    first = max(lost, key=lambda message: bool(message.here), default=None)
    if first is not None:
        raise NonFiniteError(f"{problem_of([first])}: the run has diverged")
