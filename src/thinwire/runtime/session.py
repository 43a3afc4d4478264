"""A strategy at work on one rank: its state, its guards, its checkpoints."""

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
from ..reducers import goes_by_rate
from ..transports import Decision, Meter, PeerLostError, ProcessGroupTransport, Simulated, Transport, told_of
from ..version import __version__
from . import checkpoints
from .agreement import agree
from .learned_code_guard import Guard
from .nonfinite import ADVICE, NonFiniteError, names_here, problem_of
from .peer_loss import Exchanges
from .savings import Savings


class Session:
    """Runs a strategy's talks on the queue of this rank, and keeps what it remembers."""

    def __init__(
        self,
        replica: Replica,
        strategy: Strategy,
        transport: Transport,
        on_nonfinite: str,
        on_peer_loss: str = "raise",
        copied: Iterable[Tensor] = (),  # from rank 0 to all, before they begin
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
        self.before_asking: Callable[[str], None] = lambda what: None  # whoever sees to it that all ranks ask the same
        self.worker = transport.queue()
        weakref.finalize(self, self.worker.stop)  # a model that is dropped takes its thread with it
        self.begin_step()
        self.talks = Exchanges(transport, on_peer_loss, self._go_on if strategy.survivable else None)
        self._under_way: Future[Any] | None = None
        self._savings = Savings(strategy, replica, self.meter)
        self._guard = Guard(strategy)

    def begin_step(self) -> None:
        """Remember what there is to go back to."""
        self._before_step, self._thrown_away = self.state, False

    def hold(self, make: Callable[[], Rounds], gradient_of: Callable[[str], Tensor | None]) -> None:
        """Hold a talk about these gradients to its end; it is made anew if some ranks are lost. Runs on the worker.

        Where messages may travel while replicas compute, nothing is said here, and it runs where it is called.
        """
        outcome: StepResult | None = self.transport.run(make()) if self.quiet else self.talks.held(make, self.meter)
        if outcome is None:
            return
        self.state = outcome.state
        if outcome.lost:
            self._lose(outcome.lost, gradient_of)
        if self._thrown_away:
            self.state = self._before_step

    @property
    def quiet(self) -> bool:
        """Whether nothing is said around this update."""
        overlapping = self.strategy.overlapping
        return overlapping is not None and overlapping.quiet(self.meter.steps)

    def launch(self) -> None:
        """Land what is to be here by now, and begin a talk that goes on while the replica computes, if it is time."""
        strategy = self.strategy.overlapping
        if strategy is None:
            return
        if strategy.lands(self.meter.steps):
            self.land()
        if strategy.launches(self.meter.steps) and self.talks.may_launch():
            self.state, talk = strategy.launch(self.replica, self.state)
            aside = Meter(names=self.meter.names)  # the thread counts at times of its own; all is counted as it lands
            self._under_way = self.worker.submit(lambda: (self.transport.run(talk, aside), aside))

    def land(self) -> None:
        """Finish what is on its way."""
        self._use(self._awaited())

    def _awaited(self) -> tuple[Any, Meter] | None:
        """What has come of what was on its way; None if nothing was, or it is lost with some ranks, and its weight."""
        under_way, self._under_way = self._under_way, None
        return None if under_way is None else self.talks.landed(under_way.result)

    def _use(self, landed: tuple[Any, Meter] | None) -> None:
        if landed is None:
            return
        arrived, aside = landed
        self.meter.add(aside)
        strategy = self.strategy.overlapping
        assert strategy is not None, "others have nothing in flight"
        self.state, lost = strategy.land(self.replica, self.state, arrived)
        if lost:
            self._lose(lost, lambda name: None)

    def asked(self, what: str, talk: Callable[[int], Rounds]) -> Any:
        """What comes of a talk among all ranks that is no part of training."""
        self.before_asking(what)
        self.worker.wait()
        self.land()
        aside = Meter()
        found = self.worker.submit(lambda: self.talks.held(lambda: talk(self.replica.size), aside)).result()
        if found is None:  # the others were here before some of them were lost
            warnings.warn(
                "the others had their average before ranks were lost: this one is of this rank alone", stacklevel=5
            )
            with torch.no_grad():
                (found,) = Simulated(1).run([talk(1)])
        self.meter.average_bytes += aside.link_bytes
        return found

    def observe(self, loss: Tensor | float) -> None:
        """Remember the loss of this step, if the strategy asks for it."""
        if self.strategy.needs_loss:
            self.replica = self.replica._replace(loss=float(loss.detach() if isinstance(loss, Tensor) else loss))

    def at_rate(self, rate: Tensor | float | None) -> None:
        """Remember the learning rate, if the method asks for it."""
        if not goes_by_rate(self.strategy):
            return
        if rate is None or not 0 <= float(rate) < inf:
            raise ValueError(f"{notation_of(self.strategy)} needs a learning rate of 0 or more, not {rate!r}")
        self.replica = self.replica._replace(rate=float(rate))

    def check_loss(self) -> None:
        strategy = self.strategy
        if strategy.needs_loss and self.replica.loss is None:
            problem = ValueError(
                f"{notation_of(strategy)} needs the loss: call handle.report_loss(loss) before each optimizer.step()"
            )
            self.talks.leave(problem)
            raise problem

    def check_gradients(self) -> None:
        """Where gradients stay each rank's own, one that is not finite is this rank's own affair."""
        strategy = self.strategy
        own = strategy.local_gradients(self.state)
        if not own or self.on_nonfinite == "pass":
            return
        parameters = self.replica.parameters
        wrong = [name for name, p in parameters.items() if p.grad is not None and not is_finite(p.grad)]
        if wrong:
            self._lose((NonFinite(tuple(wrong), tuple(wrong)),), lambda name: parameters[name].grad)

    def count(self, nbytes: int | None = None) -> None:
        """Note so many bytes of gradients; by default, those of the model."""
        self.meter.count_dense(self.dense_bytes if nbytes is None else nbytes, self.transport.size)

    def end_step(self) -> None:
        """Count the step, and say once if the method does not save anything."""
        self.meter.steps += 1
        self.replica = self.replica._replace(loss=None)
        self._savings.end_step(self.strategy, self.transport.size)
        self._guard.end_step(self.strategy, self.replica, self.state, self.meter)

    def layers(self) -> dict[str, Layer]:
        self.worker.wait()
        return self.strategy.layers(self.replica, self.state, self.meter.dense_bytes, self.meter.payload_by_unit)

    def learning(self) -> dict[str, Learning]:
        return self._guard.found

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from; a message in flight is waited for, and lands when it is due, as without saving."""
        self.worker.wait()
        arrived = self._awaited()
        if arrived is not None and arrived[0].lost:
            self._use(arrived)
            arrived = None
        self._under_way = None if arrived is None else _done(arrived)
        flight = None if arrived is None else (plain(arrived[0]), _counted(arrived[1]))
        return self._identity() | _counted(self.meter) | {"state": plain(self.state), "in_flight": flight}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.worker.wait()
        landed = self._awaited()  # it is of a model that is no longer here
        try:
            checkpoints.check(saved, self._identity())
            state = restored(self.strategy.init(self.replica), saved["state"])
            under_way = self._restored_flight(state, saved["in_flight"])
        except ValueError:
            self._use(landed)
            raise
        self.meter.load(saved["meter"], saved["itemized"])
        self.state, self._under_way = state, under_way
        self._savings.begin()

    def _restored_flight(self, state: State, saved: Any) -> Future[Any] | None:
        if saved is None:
            return None
        strategy = self.strategy.overlapping
        if strategy is None:
            raise ValueError("the checkpoint has a message in flight, and this method has none")
        plainly, counted = saved
        aside = Meter(names=self.meter.names)
        aside.load(counted["meter"], counted["itemized"])
        return _done((restored(strategy.in_flight(state), plainly), aside))

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint of this rank is one of."""
        own = {"replica": checkpoints.digest(self.replica.parameters.values())} if self._is_local() else {}
        return {
            "version": checkpoints.VERSION,
            "method": notation_of(self.strategy),
            "ranks": self.transport.size,
            "rank": self.transport.rank,
            "parameters": self._described,
        } | own

    def close(self) -> None:
        try:
            if self.talks.broken is None:
                self.land()
        finally:
            self.worker.close()
            self.transport.close()

    def release(self) -> None:
        """Give the model back as the user made it, if the strategy changed it."""
        if self.strategy.factoring is not None:
            self.replica = self.strategy.factoring.release(self.replica)

    def factored(self) -> dict[str, Any]:
        """The layers that are low-rank at times, by name; empty if the strategy factors none."""
        factoring = self.strategy.factoring
        return {} if factoring is None else dict(factoring.factored(self.replica))

    def _go_on(self, decision: Decision) -> None:
        """With those who are left, and what they remember made to fit each other again."""
        transport, strategy = self.transport, self.strategy.survivable
        assert strategy is not None, "others need all ranks"
        assert isinstance(transport, ProcessGroupTransport), "others have no ranks that are lost"
        told, before = told_of(decision.lost, transport.names, transport.timeout), transport.size
        left = len(decision.survivors)
        try:
            strategy = strategy.without_failed(decision.survivors, before)
        except ValueError as error:  # the same on all ranks
            raise PeerLostError(f"{told}; the other {left}, numbered anew, cannot go on: {error}") from None
        transport.regroup(decision)
        hosts = tuple(self.replica.hosts[rank] for rank in decision.survivors)
        self.replica = self.replica._replace(rank=transport.rank, size=transport.size, hosts=hosts)
        self.strategy = strategy
        self.state = transport.run(strategy.rejoin(self.replica)).state
        self._before_step, self._under_way = self.state, None
        self._savings.begin()
        warnings.warn(f"{told}; the other {transport.size} ranks go on", stacklevel=2)

    def _is_local(self) -> bool:
        """Whether replicas differ, and are each rank's own."""
        return self.strategy.replicas_differ

    def _lose(self, lost: tuple[NonFinite, ...], gradient_of: Callable[[str], Tensor | None]) -> None:
        if self.on_nonfinite == "raise" or lost[0].what != "gradient":
            self.state = self._before_step
            problem, here = problem_of(lost), names_here(lost)
            if self._is_local():  # those further away have not heard of it
                self.talks.leave(NonFiniteError(problem if here else f"it heard {problem}"))
            raise NonFiniteError(
                f"{problem}, on {'this' if here else 'another'} rank (this is rank {self.talks.rank}, step "
                f"{self.meter.steps}). {ADVICE if lost[0].what == 'gradient' else 'The run has diverged'}"
            )
        self.meter.skipped += len(lost)
        self._thrown_away = self.on_nonfinite == "pass"  # whoever sees the NaN will not make this step
        if self.on_nonfinite == "skip":
            for name in (name for message in lost for name in message.names):
                gradient = gradient_of(name)
                if gradient is not None:
                    gradient.zero_()


def _counted(meter: Meter) -> dict[str, Any]:
    return {"meter": meter.as_dict(prefix=""), "itemized": meter.itemized()}


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future
