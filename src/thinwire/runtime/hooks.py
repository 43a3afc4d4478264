"""Connects a session to a training script: through DDP's communication hook, or through an optimizer's step hooks."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..core import GradientAveraging, Rounds
from ..methods import notation_of
from ..reducers import uses_learning_rate
from ..strategies import Unit
from .replica_of import local
from .session import Session


class Step:
    """The progress of one backward pass under DDP."""

    def __init__(self, units: Mapping[str, Unit]) -> None:
        self.units = units  # by the name of each of their parameters
        self.missing = {unit.key: len(unit.names) for unit in units.values()}  # number of gradients not yet ready
        self.gradients: dict[str, Tensor] = {}  # that are ready, by name
        self.reduced: set[str] = set()  # names of the parameters whose gradients are reduced
        self.waiting: list[tuple[Any, Future[Tensor], set[str]]] = []  # buckets not yet returned to DDP
        self.error: BaseException | None = None

    def take(self, gradients: dict[str, Tensor]) -> list[Unit]:
        """Add gradients that are ready; returns the units that are complete with them."""
        self.gradients |= gradients
        ready = []
        for unit in (self.units[name] for name in gradients):
            self.missing[unit.key] -= 1
            if not self.missing[unit.key]:
                del self.missing[unit.key]
                ready.append(unit)
        return ready

    def return_buckets(self) -> None:
        """Complete the futures of the buckets whose parameters are all reduced."""
        for entry in list(self.waiting):
            bucket, future, names = entry
            if names <= self.reduced:
                self.waiting.remove(entry)
                future.set_result(bucket.buffer())


class Buckets:
    """Turns DDP's buckets into a strategy's units, whatever parameters each bucket holds.

    While backward continues, a unit is exchanged as soon as the gradients of all its parameters are ready. A bucket is
    returned to DDP as soon as all its gradients are reduced.
    """

    def __init__(self, ddp: DistributedDataParallel, session: Session, strategy: GradientAveraging) -> None:
        # Weak: DDP references its hook, and so this object, from C++, where the garbage collector cannot see a cycle.
        self.ddp, self.session, self.strategy = weakref.ref(ddp), session, strategy
        self.names = {id(p): name for name, p in session.replica.parameters.items()}
        self.units = {name: unit for unit in strategy.units(session.replica) for name in unit.names}
        self.step = Step(self.units)

    def exchange(self, bucket: Any) -> Future[Tensor]:
        if bucket.index() == 0:
            self.step = Step(self.units)
        step, buffer = self.step, bucket.buffer()
        named = [(self.names.get(id(p)), g) for p, g in zip(bucket.parameters(), bucket.gradients(), strict=True)]
        gradients = {name: gradient for name, gradient in named if name}
        future: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else [])
        step.waiting.append((bucket, future, set(gradients)))
        ready, wait_until_computed = step.take(gradients), _wait_until_computed(buffer)
        problem, last = self._problem(bucket), bucket.is_last()
        self.session.count(buffer.nbytes)
        self.session.worker.submit(lambda: self._exchange(step, ready, wait_until_computed, problem, last))
        if last:
            self._end_step_after_ddp(step)
        return future

    def _problem(self, bucket: Any) -> ValueError | None:
        """The error that a bucket causes, if any. It is the same on every rank, so all stop at this bucket."""
        if not getattr(self.ddp(), "_divide_by_initial_world_size", True):
            return ValueError(
                "Join(divide_by_initial_world_size=False) is not supported: thinwire divides by all ranks"
            )
        if uses_learning_rate(self.strategy) and self.session.replica.rate is None:
            return ValueError(
                f"{notation_of(self.strategy)} needs the learning rate: call handle.set_lr(...) before backward()"
            )
        unknown = {id(p) for p in bucket.parameters()} - self.names.keys()
        ddp = self.ddp()
        if unknown and ddp is not None:
            names = ", ".join(name for name, p in ddp.module.named_parameters() if id(p) in unknown)
            return ValueError(
                f"DDP reduces parameters that were frozen when thinwire was attached: {names}. Freeze them before DDP "
                "wraps the model, or attach before they are frozen"
            )
        if bucket.is_last() and self.step.missing:
            names = ", ".join(name for name in self.units if name not in self.step.gradients)
            return ValueError(f"thinwire was attached to parameters that DDP does not reduce: {names}")
        return None

    def _exchange(
        self,
        step: Step,
        ready: list[Unit],
        wait_until_computed: Callable[[], None],
        problem: ValueError | None,
        last: bool,
    ) -> None:
        """Exchange the units that are complete. Runs on the worker."""
        session = self.session
        # Not earlier: buckets before this one may still be in the queue here, and already exchanged on another rank.
        step.error = step.error or problem
        try:
            wait_until_computed()
            if not step.reduced:
                session.begin_step()
            if ready and not step.error:
                size, rate = session.replica.size, session.replica.rate
                session.exchange(
                    lambda: self.strategy.exchange(ready, step.gradients, size, session.state, rate),
                    step.gradients.__getitem__,
                )
        except BaseException as error:  # return the buckets to DDP first, so that it stays usable; then the step raises
            step.error = error
        step.reduced |= step.gradients.keys() if last else {name for unit in ready for name in unit.names}
        step.return_buckets()

    def _end_step_after_ddp(self, step: Step) -> None:
        """End the step at the end of backward, after DDP has taken its buckets back."""

        def end() -> None:
            if step.error:
                raise step.error
            self.session.end_step()

        engine = torch.autograd.Variable._execution_engine  # torch has no public name for it
        try:
            # DDP queues its own callback right after this one. A callback that this one queues runs after both.
            engine.queue_callback(lambda: engine.queue_callback(end))
        except RuntimeError:  # not in backward: under Join, a rank without data takes part for the others
            self.session.worker.wait()
            end()


ATTRIBUTE = "_thinwire_attached"  # on an optimizer


def is_attached(optimizer: Optimizer) -> bool:
    return hasattr(optimizer, ATTRIBUTE)


class Updates:
    """Runs a strategy's exchanges before and after each step of an optimizer."""

    def __init__(
        self, session: Session, optimizer: Optimizer, model: nn.Module, find_unused_parameters: bool = True
    ) -> None:
        self.session, self.optimizer, self.find_unused_parameters = session, optimizer, find_unused_parameters
        self.names = {id(p): name for name, p in model.named_parameters()}
        setattr(optimizer, ATTRIBUTE, True)
        self.handles = (
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        )

    def remove(self) -> None:
        delattr(self.optimizer, ATTRIBUTE)
        for handle in self.handles:
            handle.remove()

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is not None or any(callable(argument) for argument in args[1:]):
            raise ValueError(
                "optimizer.step(closure) is not supported: gradients are exchanged before the closure runs"
            )
        session = self.session
        self._check_unchanged(optimizer)
        self._take_shards()
        session.begin_step()
        session.count()
        session.set_lr(optimizer.param_groups[0].get("lr"))
        session.check_loss()
        session.check_gradients()
        self._exchange(self._before_update if self.find_unused_parameters else self._average_all)
        self._return_shards()

    def _before_update(self) -> Rounds:
        return self.session.strategy.before_update(self.session.replica, self.session.state)

    def _average_all(self) -> Rounds:
        """Average the gradients of all parameters, as under DDP: a missing gradient counts as zero."""
        strategy, replica = self.session.strategy.gradient_averaging, self.session.replica
        assert strategy is not None, "attach has checked it"
        gradients = {}
        for name, p in replica.parameters.items():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            gradients[name] = p.grad
        return strategy.exchange(strategy.units(replica), gradients, replica.size, self.session.state, replica.rate)

    def _take_shards(self) -> None:
        """Give the replica this process's shards of the gradients of DTensor parameters, in the same memory."""
        replica = self.session.replica
        for name, dtensor in replica.dtensors.items():
            if dtensor.grad is not None and dtensor.grad.placements != dtensor.placements:
                dtensor.grad = dtensor.grad.redistribute(placements=dtensor.placements)
            replica.parameters[name].grad = None if dtensor.grad is None else local(dtensor.grad)

    def _return_shards(self) -> None:
        """Clear the gradients of DTensor parameters that no rank used, and set those that only other ranks used."""
        replica = self.session.replica
        for name, dtensor in replica.dtensors.items():
            gradient = replica.parameters[name].grad
            if gradient is None:  # no rank has used the parameter
                dtensor.grad = None
            elif dtensor.grad is None:  # another rank has
                dtensor.grad = type(dtensor.data).from_local(gradient, dtensor.device_mesh, dtensor.placements)

    def _check_unchanged(self, optimizer: Optimizer) -> None:
        replica = self.session.replica
        known = {id(replica.dtensors.get(name, p)) for name, p in replica.parameters.items()}
        trained = (p for settings in optimizer.param_groups for p in settings["params"] if p.requires_grad)
        added = [
            self.names.get(id(p), "a parameter that the model did not have") for p in trained if id(p) not in known
        ]
        if added:
            raise ValueError(
                f"parameters were added to the optimizer after thinwire was attached: {', '.join(added)}. "
                "They would not be exchanged: detach() and attach() again"
            )

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self.session
        self._exchange(lambda: session.strategy.after_update(session.replica, session.state))
        session.end_step()
        with torch.no_grad():
            session.launch()

    def _exchange(self, make: Callable[[], Rounds]) -> None:
        session, parameters = self.session, self.session.replica.parameters

        @torch.no_grad()
        def exchange() -> None:
            session.exchange(make, lambda name: parameters[name].grad)

        if session.quiet:
            exchange()  # here, as the queue may be busy with the exchange in flight
        else:
            session.worker.submit(exchange).result()


def _wait_until_computed(buffer: Tensor) -> Callable[[], None]:
    """A function that makes the caller's CUDA stream wait for the buffer; on a CPU it is ready already."""
    if not buffer.is_cuda:
        return lambda: None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    event.record()
    return lambda: torch.cuda.current_stream(buffer.device).wait_event(event)
