"""DDP's communication hook: buckets in, units exchanged while backward continues, buckets out."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ..core import GradientAveraging
from ..methods import notation_of
from ..reducers import uses_learning_rate
from ..strategies import Unit
from ..transports import GradBucket, averaged_bucket
from .session import Session

ATTRIBUTE = "_thinwire_hook"  # on a DDP module


class BucketHook:
    """The communication hook of a DDP module: passes its buckets to the attached method, or averages them.

    DDP keeps a hook for life. So it stays registered, and its `exchange` changes.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self.exchange: Callable[[Any], Future[Tensor]] | None = None
        # Weak: DDP references its hook from C++, where the garbage collector cannot see a cycle.
        self.ddp = weakref.ref(ddp)
        try:
            ddp.register_comm_hook(None, self.hook)
        except RuntimeError as error:
            raise ValueError(f"this DDP module has another communication hook: {error}") from None

    @classmethod
    def of(cls, ddp: DistributedDataParallel) -> "BucketHook":
        """The hook on this module, registered now if it has none."""
        if not hasattr(ddp, ATTRIBUTE):
            object.__setattr__(ddp, ATTRIBUTE, cls(ddp))
        hook: BucketHook = getattr(ddp, ATTRIBUTE)
        return hook

    def hook(self, _: Any, bucket: GradBucket) -> Future[Tensor]:  # type: ignore[valid-type]  # DDP checks this
        if self.exchange is not None:
            return self.exchange(bucket)
        ddp = self.ddp()
        assert ddp is not None, "DDP calls its hook, so it exists"
        return averaged_bucket(ddp, bucket)


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


def _wait_until_computed(buffer: Tensor) -> Callable[[], None]:
    """A function that makes the caller's CUDA stream wait for the buffer; on a CPU it is ready already."""
    if not buffer.is_cuda:
        return lambda: None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    event.record()
    return lambda: torch.cuda.current_stream(buffer.device).wait_event(event)
