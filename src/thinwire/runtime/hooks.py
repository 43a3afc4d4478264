"""Where thinwire meets a training script: DDP's communication hook, or an optimizer's hooks."""

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
from ..reducers import goes_by_rate
from ..strategies import Unit
from .replica_of import local
from .session import Session


class Step:
    """What has happened in one backward pass."""

    def __init__(self, units: Mapping[str, Unit]) -> None:
        self.units = units  # by the name of each of their parameters
        self.awaited = {unit.key: len(unit.names) for unit in units.values()}  # how many of its gradients
        self.arrived: dict[str, Tensor] = {}  # gradients, by name
        self.talked: set[str] = set()  # names whose gradients are reduced
        self.waiting: list[tuple[Any, Future[Tensor], set[str]]] = []  # buckets not yet given back to DDP
        self.error: BaseException | None = None

    def take(self, gradients: dict[str, Tensor]) -> list[Unit]:
        """Note gradients that have arrived; returns the units that are complete with them."""
        self.arrived |= gradients
        ready = []
        for unit in (self.units[name] for name in gradients):
            self.awaited[unit.key] -= 1
            if not self.awaited[unit.key]:
                del self.awaited[unit.key]
                ready.append(unit)
        return ready

    def give_back(self) -> None:
        for entry in list(self.waiting):
            bucket, future, names = entry
            if names <= self.talked:
                self.waiting.remove(entry)
                future.set_result(bucket.buffer())


class Buckets:
    """Turns DDP's buckets into a strategy's units, however the parameters are spread over buckets.

    A unit is talked about as soon as all its parameters have arrived, and a bucket is given back as soon as all its
    parameters have been talked about, while backward goes on.
    """

    def __init__(self, ddp: DistributedDataParallel, session: Session, strategy: GradientAveraging) -> None:
        # DDP holds its hook, and so this, where Python's collector cannot see it: a model must not hold itself alive.
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
        ready, computed = step.take(gradients), _computed(buffer)
        problem, last = self._problem(bucket), bucket.is_last()
        self.session.count(buffer.nbytes)
        self.session.worker.submit(lambda: self._talk(step, ready, computed, problem, last))
        if last:
            self._when_given_back(step)
        return future

    def _problem(self, bucket: Any) -> ValueError | None:
        """What is wrong with a bucket, if anything is: the same on every rank, so all stop talking at this bucket."""
        if not getattr(self.ddp(), "_divide_by_initial_world_size", True):
            return ValueError(
                "Join(divide_by_initial_world_size=False) is not supported: thinwire divides by all ranks"
            )
        if goes_by_rate(self.strategy) and self.session.replica.rate is None:
            return ValueError(
                f"{notation_of(self.strategy)} needs the learning rate: call handle.set_lr(...) before backward()"
            )
        unknown = {id(p) for p in bucket.parameters()} - self.names.keys()
        ddp = self.ddp()
        if unknown and ddp is not None:
            names = ", ".join(name for name, p in ddp.module.named_parameters() if id(p) in unknown)
            return ValueError(
                f"DDP reduces parameters that were frozen when thinwire was attached: {names}. Freeze them before DDP "
                "is made, or attach before they are frozen"
            )
        if bucket.is_last() and self.step.awaited:
            names = ", ".join(name for name in self.units if name not in self.step.arrived)
            return ValueError(f"DDP does not reduce these parameters, for which thinwire was attached: {names}")
        return None

    def _talk(
        self, step: Step, ready: list[Unit], computed: Callable[[], None], problem: ValueError | None, last: bool
    ) -> None:
        """Runs on the worker."""
        session = self.session
        # Only now: earlier buckets may still be in the queue here and be talked about already on another rank.
        step.error = step.error or problem
        try:
            computed()
            if not step.talked:
                session.begin_step()
            if ready and not step.error:
                size, rate = session.replica.size, session.replica.rate
                session.hold(
                    lambda: self.strategy.exchange(ready, step.arrived, size, session.state, rate),
                    step.arrived.__getitem__,
                )
        except BaseException as error:  # DDP gets its buckets back and stays whole; then the step raises
            step.error = error
        step.talked |= step.arrived.keys() if last else {name for unit in ready for name in unit.names}
        step.give_back()

    def _when_given_back(self, step: Step) -> None:
        """End the step once DDP has taken its buckets back."""

        def end() -> None:
            if step.error:
                raise step.error
            self.session.end_step()

        engine = torch.autograd.Variable._execution_engine  # torch has no public name for it
        try:
            # DDP queues its own callback right after this one; a callback of the callback comes after both.
            engine.queue_callback(lambda: engine.queue_callback(end))
        except RuntimeError:  # not in backward: under Join, a rank without data goes along with the others
            self.session.worker.wait()
            end()


ATTRIBUTE = "_thinwire_attached"  # on an optimizer


def is_attached(optimizer: Optimizer) -> bool:
    return hasattr(optimizer, ATTRIBUTE)


class Updates:
    """Holds a strategy's talks around an optimizer's steps."""

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
        self._take_parts()
        session.begin_step()
        session.count()
        session.at_rate(optimizer.param_groups[0].get("lr"))
        session.check_loss()
        session.check_gradients()
        self._hold(self._before_update if self.find_unused_parameters else self._averaged)
        self._give_parts_back()

    def _before_update(self) -> Rounds:
        return self.session.strategy.before_update(self.session.replica, self.session.state)

    def _averaged(self) -> Rounds:
        """As under DDP: of a parameter that was not used, the gradient is zero."""
        strategy, replica = self.session.strategy.gradient_averaging, self.session.replica
        assert strategy is not None, "others have been refused"
        gradients = {}
        for name, p in replica.parameters.items():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            gradients[name] = p.grad
        return strategy.exchange(strategy.units(replica), gradients, replica.size, self.session.state, replica.rate)

    def _take_parts(self) -> None:
        """Of parameters that several processes have parts of, the gradients of this one's, in the same memory."""
        replica = self.session.replica
        for name, whole in replica.dtensors.items():
            if whole.grad is not None and whole.grad.placements != whole.placements:
                whole.grad = whole.grad.redistribute(placements=whole.placements)
            replica.parameters[name].grad = None if whole.grad is None else local(whole.grad)

    def _give_parts_back(self) -> None:
        replica = self.session.replica
        for name, whole in replica.dtensors.items():
            gradient = replica.parameters[name].grad
            if gradient is None:  # nobody has used it
                whole.grad = None
            elif whole.grad is None:  # others have
                whole.grad = type(whole.data).from_local(gradient, whole.device_mesh, whole.placements)

    def _check_unchanged(self, optimizer: Optimizer) -> None:
        replica = self.session.replica
        known = {id(replica.dtensors.get(name, p)) for name, p in replica.parameters.items()}
        trained = (p for settings in optimizer.param_groups for p in settings["params"] if p.requires_grad)
        added = [self.names.get(id(p), "one that the model did not have") for p in trained if id(p) not in known]
        if added:
            raise ValueError(
                f"the optimizer trains parameters that it did not when thinwire was attached: {', '.join(added)}. "
                "They would not be exchanged: detach() and attach() again"
            )

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self.session
        self._hold(lambda: session.strategy.after_update(session.replica, session.state))
        session.end_step()
        with torch.no_grad():
            session.launch()

    def _hold(self, make: Callable[[], Rounds]) -> None:
        session, parameters = self.session, self.session.replica.parameters

        @torch.no_grad()
        def hold() -> None:
            session.hold(make, lambda name: parameters[name].grad)

        if session.quiet:
            hold()  # the queue is busy with what is on its way
        else:
            session.worker.submit(hold).result()


def _computed(buffer: Tensor) -> Callable[[], None]:
    """Makes the thread that calls it wait until the buffer is computed; on a CPU it is already."""
    if not buffer.is_cuda:
        return lambda: None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    event.record()
    return lambda: torch.cuda.current_stream(buffer.device).wait_event(event)
