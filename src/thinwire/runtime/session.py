"""Runs a strategy on one rank: keeps its state, checks for NaN and failed ranks, saves and restores."""

import warnings
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from math import inf
from typing import Any

import torch
from torch import Tensor

from ..core import Replica, Rounds, State, Strategy
from ..core.layer_report import Layer
from ..core.lazy import is_finite
from ..core.outcome import Learning, NonFinite, StepResult
from ..core.states import plain, restored
from ..methods import notation_of
from ..reducers import uses_learning_rate
from ..transports import (
    Meter,
    PeerLostError,
    ProcessGroupTransport,
    RegroupPlan,
    Simulated,
    Transport,
    describe_failures,
)
from ..version import __version__
from . import checkpoints
from .agreement import agree
from .learned_code_guard import LearnedCodeGuard
from .nonfinite import ADVICE, NonFiniteError, names_here, problem_of
from .peer_loss import Exchanges
from .savings import Savings


class Session:
    """Runs a strategy's exchanges on the queue of this rank, and keeps the strategy's state."""

    def __init__(
        self,
        replica: Replica,
        strategy: Strategy,
        transport: Transport,
        on_nonfinite: str,
        on_peer_loss: str = "raise",
        copied: Iterable[Tensor] = (),  # tensors to overwrite with those of rank 0 first
    ) -> None:
        self.replica, self.strategy = replica, strategy
        self.transport, self.meter = transport, transport.meter
        self.on_nonfinite, self.on_peer_loss = on_nonfinite, on_peer_loss
        settings = (f"on_nonfinite: {on_nonfinite}", f"on_peer_loss: {on_peer_loss}")
        method = f"method: {notation_of(strategy)}"
        self._described = [f"parameter {n}: {p.dtype} {tuple(p.shape)}" for n, p in replica.parameters.items()]
        self.dense_bytes = sum(p.nbytes for p in replica.parameters.values())
        agree(transport, [f"thinwire version: {__version__}", method, *settings, *self._described])
        transport.broadcast(copied)
        self.state = strategy.init(replica)
        self.before_collective: Callable[[str], None] = lambda name: None  # may check that all ranks make the same call
        self.worker = transport.queue()
        weakref.finalize(self, self.worker.stop)  # the thread ends when the session is garbage-collected
        self.begin_step()
        self.exchanges = Exchanges(transport, on_peer_loss, self._regroup if strategy.survivable else None)
        self._in_flight: Future[Any] | None = None
        self._savings = Savings(strategy, replica, self.meter)
        self._guard = LearnedCodeGuard(strategy)

    def begin_step(self) -> None:
        """Keep the current state, to return to it if the step is discarded."""
        self._before_step, self._discarded = self.state, False

    def exchange(self, make: Callable[[], Rounds], gradient_of: Callable[[str], Tensor | None]) -> None:
        """Run an exchange and keep the state that it returns. If ranks fail, it is made again. Runs on the worker.

        In a quiet step, it sends nothing and runs in the caller's thread.
        """
        result: StepResult | None = self.transport.run(make()) if self.quiet else self.exchanges.run(make, self.meter)
        if result is None:
            return
        self.state = result.state
        if result.nonfinite:
            self._handle_nonfinite(result.nonfinite, gradient_of)
        if self._discarded:
            self.state = self._before_step

    @property
    def quiet(self) -> bool:
        """Whether nothing is sent around this update: an exchange may be in flight, and the queue busy with it."""
        overlapping = self.strategy.overlapping
        return overlapping is not None and overlapping.quiet(self.meter.steps)

    def launch(self) -> None:
        """Land the exchange in flight if it is due, and launch the next one if it is time."""
        strategy = self.strategy.overlapping
        if strategy is None:
            return
        if strategy.lands(self.meter.steps):
            self.land()
        if strategy.launches(self.meter.steps) and self.exchanges.may_launch():
            self.state, exchange = strategy.launch(self.replica, self.state)
            # A separate meter, since the worker counts while the main thread does. It is added when the exchange lands.
            meter = Meter(original_ranks=self.meter.original_ranks)
            self._in_flight = self.worker.submit(lambda: (self.transport.run(exchange, meter), meter))

    def land(self) -> None:
        """Finish the exchange in flight, if there is one."""
        self._apply(self._wait_in_flight())

    def _wait_in_flight(self) -> tuple[Any, Meter] | None:
        """The result and meter of the exchange in flight; None if there is none, or it was dropped as ranks failed."""
        in_flight, self._in_flight = self._in_flight, None
        return None if in_flight is None else self.exchanges.wait(in_flight.result)

    def _apply(self, landed: tuple[Any, Meter] | None) -> None:
        if landed is None:
            return
        arrived, meter = landed
        self.meter.add(meter)
        strategy = self.strategy.overlapping
        assert strategy is not None, "no other strategy has exchanges in flight"
        self.state, nonfinite = strategy.land(self.replica, self.state, arrived)
        if nonfinite:
            self._handle_nonfinite(nonfinite, lambda name: None)

    def run_collective(self, name: str, make: Callable[[int], Rounds]) -> Any:
        """The result of an exchange outside of training that all ranks call; `make` takes the number of ranks."""
        self.before_collective(name)
        self.worker.wait()
        self.land()
        meter = Meter()
        result = self.worker.submit(lambda: self.exchanges.run(lambda: make(self.replica.size), meter)).result()
        if result is None:  # the other ranks completed this call before some of them failed
            warnings.warn(
                "the other ranks computed their average before ranks failed: this one is of this rank alone",
                stacklevel=5,
            )
            with torch.no_grad():
                (result,) = Simulated(1).run([make(1)])
        self.meter.average_bytes += meter.link_bytes
        return result

    def report_loss(self, loss: Tensor | float) -> None:
        """Set the loss of this step, if the strategy needs it."""
        if self.strategy.needs_loss:
            self.replica = self.replica._replace(loss=float(loss.detach() if isinstance(loss, Tensor) else loss))

    def set_lr(self, lr: Tensor | float | None) -> None:
        """Set the learning rate, if the method needs it."""
        if not uses_learning_rate(self.strategy):
            return
        if lr is None or not 0 <= float(lr) < inf:
            raise ValueError(f"{notation_of(self.strategy)} needs a learning rate of 0 or more, not {lr!r}")
        self.replica = self.replica._replace(rate=float(lr))

    def check_loss(self) -> None:
        """Stop all ranks with a ValueError if the strategy needs the loss and it was not reported."""
        strategy = self.strategy
        if strategy.needs_loss and self.replica.loss is None:
            problem = ValueError(
                f"{notation_of(strategy)} needs the loss: call handle.report_loss(loss) before each optimizer.step()"
            )
            self.exchanges.abort(problem)
            raise problem

    def check_gradients(self) -> None:
        """Handle NaN and infinity on this rank, if the next update uses its local gradients."""
        strategy = self.strategy
        if not strategy.local_gradients(self.state) or self.on_nonfinite == "pass":
            return
        parameters = self.replica.parameters
        bad = [name for name, p in parameters.items() if p.grad is not None and not is_finite(p.grad)]
        if bad:
            self._handle_nonfinite((NonFinite(tuple(bad), tuple(bad)),), lambda name: parameters[name].grad)

    def count(self, nbytes: int | None = None) -> None:
        """Count bytes of gradients; by default, those of the whole model."""
        self.meter.count_dense(self.dense_bytes if nbytes is None else nbytes, self.transport.size)

    def end_step(self) -> None:
        """Count the step, and run the checks that warn about a method."""
        self.meter.steps += 1
        self.replica = self.replica._replace(loss=None)
        self._savings.end_step(self.strategy, self.transport.size)
        self._guard.end_step(self.strategy, self.replica, self.state, self.meter)

    def layers(self) -> dict[str, Layer]:
        self.worker.wait()
        return self.strategy.layers(self.replica, self.state, self.meter.dense_bytes, self.meter.payload_by_unit)

    def learning(self) -> dict[str, Learning]:
        return self._guard.by_unit

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue. Waits for an exchange in flight, which still lands when it is due."""
        self.worker.wait()
        arrived = self._wait_in_flight()
        if arrived is not None and arrived[0].nonfinite:
            self._apply(arrived)
            arrived = None
        self._in_flight = None if arrived is None else _completed(arrived)
        in_flight = None if arrived is None else (plain(arrived[0]), _meter_state(arrived[1]))
        return self._identity() | _meter_state(self.meter) | {"state": plain(self.state), "in_flight": in_flight}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.worker.wait()
        landed = self._wait_in_flight()  # from before loading: dropped, unless loading fails
        try:
            checkpoints.check(saved, self._identity())
            state = restored(self.strategy.init(self.replica), saved["state"])
            in_flight = self._restore_in_flight(state, saved["in_flight"])
        except ValueError:
            self._apply(landed)
            raise
        self.meter.load(saved["meter"], saved["itemized"])
        self.state, self._in_flight = state, in_flight
        self._savings.begin()

    def _restore_in_flight(self, state: State, saved: Any) -> Future[Any] | None:
        if saved is None:
            return None
        strategy = self.strategy.overlapping
        if strategy is None:
            raise ValueError("the checkpoint has an exchange in flight, and this method never has one")
        result, counts = saved
        meter = Meter(original_ranks=self.meter.original_ranks)
        meter.load(counts["meter"], counts["itemized"])
        return _completed((restored(strategy.in_flight(state), result), meter))

    def _identity(self) -> dict[str, Any]:
        """The fields that must be equal when a checkpoint is loaded."""
        differ = self.strategy.replicas_differ
        own = {"replica": checkpoints.digest(self.replica.parameters.values())} if differ else {}
        return {
            "version": checkpoints.VERSION,
            "method": notation_of(self.strategy),
            "ranks": self.transport.size,
            "rank": self.transport.rank,
            "parameters": self._described,
        } | own

    def close(self) -> None:
        try:
            if self.exchanges.broken is None:
                self.land()
        finally:
            self.worker.close()
            self.transport.close()

    def release(self) -> None:
        """Restore the model's own layers, if the strategy changed them."""
        if self.strategy.factoring is not None:
            self.replica = self.strategy.factoring.release(self.replica)

    def factored(self) -> dict[str, Any]:
        """The layers that are low-rank at times, by name; empty if the strategy factors none."""
        factoring = self.strategy.factoring
        return {} if factoring is None else dict(factoring.factored(self.replica))

    def _regroup(self, plan: RegroupPlan) -> None:
        """Continue with the survivors: a new process group, the strategy for fewer ranks, and a state for it."""
        transport, strategy = self.transport, self.strategy.survivable
        assert strategy is not None, "no other strategy continues without failed ranks"
        assert isinstance(transport, ProcessGroupTransport), "only processes can fail alone"
        failures = describe_failures(plan.failed, transport.original_ranks, transport.timeout)
        left = len(plan.survivors)
        try:
            strategy = strategy.without_failed(plan.survivors, transport.size)
        except ValueError as error:  # the same on all ranks
            raise PeerLostError(f"{failures}; the other {left}, renumbered from 0, cannot continue: {error}") from None
        transport.regroup(plan)
        hosts = tuple(self.replica.hosts[rank] for rank in plan.survivors)
        self.replica = self.replica._replace(rank=transport.rank, size=transport.size, hosts=hosts)
        self.strategy = strategy
        self.state = transport.run(strategy.rejoin(self.replica)).state
        self._before_step, self._in_flight = self.state, None
        self._savings.begin()
        warnings.warn(f"{failures}; the other {transport.size} ranks continue", stacklevel=2)

    def _handle_nonfinite(self, nonfinite: tuple[NonFinite, ...], gradient_of: Callable[[str], Tensor | None]) -> None:
        """Apply `on_nonfinite` to messages that were not finite; parameters that are not finite are always an error."""
        if self.on_nonfinite == "raise" or nonfinite[0].what != "gradient":
            self.state = self._before_step
            problem, here = problem_of(nonfinite), names_here(nonfinite)
            if self.strategy.replicas_differ:  # ranks that are no neighbors have not received the message
                self.exchanges.abort(NonFiniteError(problem if here else f"it received {problem}"))
            raise NonFiniteError(
                f"{problem}, on {'this' if here else 'another'} rank (this is rank {self.exchanges.rank}, step "
                f"{self.meter.steps}). {ADVICE if nonfinite[0].what == 'gradient' else 'The run has diverged'}"
            )
        self.meter.skipped += len(nonfinite)
        self._discarded = self.on_nonfinite == "pass"  # the gradient scaler sees the NaN and skips this step
        if self.on_nonfinite == "skip":
            for name in (name for message in nonfinite for name in message.names):
                gradient = gradient_of(name)
                if gradient is not None:
                    gradient.zero_()


def _meter_state(meter: Meter) -> dict[str, Any]:
    return {"meter": meter.as_dict(prefix=""), "itemized": meter.itemized()}


def _completed(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future
