"""The training loop of one replica, which is a process or a thread."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from torch import nn

import thinwire
from thinwire import inspect, simulate
from thinwire.lab import links
from thinwire.lab.recording.capture import Capture
from thinwire.lab.recording.phases import grouped, links_of
from thinwire.lab.recording.record import Record
from thinwire.lab.recording.runs import Run
from thinwire.lab.runner.checkpoint_schedule import CheckpointSchedule
from thinwire.lab.runner.clocks import Clock
from thinwire.lab.runner.learner import Learner, Task
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import RunFolder

REPORT_EVERY = 0.25  # seconds
CODING = ("encode_seconds", "decode_seconds")
Report = Callable[..., None]  # called with the fields of an event
MakeClock = Callable[[int, inspect.Meter], Clock]  # called with the rank and its meter


class AttachError(ValueError):
    """The method cannot be attached to the model; all ranks raise this."""


class Trainer:
    """Trains one replica; replica 0 reports the progress.

    With a folder for checkpoints, it saves one every `interval` seconds, and resumes from the one that is there.
    """

    def __init__(
        self,
        plan: Plan,
        task: Task,
        report: Report,
        clock: MakeClock,
        run_folder: RunFolder,
        warned: list[str],
        after_first: Callable[[], None] = lambda: None,  # called on all replicas after the first step
    ) -> None:
        self.plan, self.task, self.report = plan, task, report
        # Plans are known to be equal: without the checks, only the method's traffic is on the link.
        self.replicator = thinwire.Replicator(plan.method, checked=False, device="cpu")
        self.context = self.replicator.context
        self.learner = Learner(plan, task, self.context.rank)
        strategy = thinwire.strategy_of(plan.method)
        self.identical, self.servers = not strategy.replicas_differ, strategy.dedicated_servers
        self.first = next(r for r in range(plan.size) if r not in self.servers)  # its residuals are recorded
        self.record = Record(plan, task, warned)
        self.needs_random = False
        self.make_clock, self.run_folder, self.after_first = clock, run_folder, after_first

    def warm_up(self) -> None:
        """Pay the one-time costs of the first steps, and find out whether the model consumes random numbers."""
        self.needs_random = self.learner.warm_up(self.plan.method)

    def train(self) -> Run | None:
        """Train all steps; returns the run on replica 0."""
        plan, learner, record, context = self.plan, self.learner, self.record, self.context
        try:
            model, _ = self.replicator.wrap(learner.model, learner.optimizer, overlap=True)
        except ValueError as error:
            self.replicator.close()
            raise AttachError(str(error)) from None
        (handle,) = self.replicator.handles
        replica, reported = simulate.replica_of(learner.model), 0.0
        capture = Capture(plan, self.task, learner, self.run_folder.folder)
        context.barrier()
        wire, clock = InterfaceCounter(context), self.make_clock(context.rank, handle.meter)

        def measure_gradients() -> None:
            if record.is_due(ahead=1):
                clock.pause()  # on all ranks, so that none waits for another one's measurement
                record.layers.measure(replica.parameters)
                clock.resume()

        reduced_in_step = self.identical and model is learner.model  # not in backward, as under DDP
        learner.adjust(measure_gradients if reduced_in_step else None)

        @contextmanager
        def not_counted() -> Iterator[None]:
            """For work that is not part of training: its time and bytes are not counted. Collective."""
            context.barrier()  # the clock runs until the last rank has finished the step
            clock.pause()
            wire.pause()
            yield
            context.barrier()
            wire.resume()
            clock.resume()

        def step_fn(context: thinwire.Context, step: int) -> None:
            nonlocal reported
            clock.wait()
            handle.set_lr(learner.rate)
            with capture.at(step):
                loss = learner.backward(model)
            handle.report_loss(loss)
            if not reduced_in_step:
                measure_gradients()
            learner.update()
            record.step(loss, handle.meter, clock.read())
            record.phases.add(step, handle.factored())
            record.codes.add(step, handle.learning(), [handle.meter.payload_by_unit], replica.parameters)
            if record.is_due():
                with not_counted():
                    self._evaluate(handle, step)
            if context.rank == 0 and (time.monotonic() - reported > REPORT_EVERY or step == self.task.steps):
                reported = time.monotonic()
                self.report(
                    step=step,
                    loss=None if learner.serves else float(loss),
                    payload_bytes=handle.meter.payload_bytes,
                    seconds=clock.read(),
                    wall=record.took()["wall"],
                )

        def begin(context: thinwire.Context) -> range:
            """Start or resume the run; a checkpoint has been loaded by now."""
            capture.remove_stale()
            if record.steps and context.rank == 0:
                self.report(resumed=record.steps)
            clock.resume()
            wire.resume()
            return range(1, self.task.steps + 1)

        self.replicator.keep(
            schedule=learner.schedule, learner=learner, record=record, clock=clock, wire=wire, capture=capture
        )
        checkpoints = CheckpointSchedule(self.run_folder.interval, context)
        steps = self.replicator.iterate(step_fn, begin, checkpoint=self.run_folder.checkpoints, keep=1)
        first = True
        for _ in steps:
            try:
                if first:
                    with not_counted():
                        self.after_first()
                    first = False
                if record.is_last:
                    break
                if checkpoints.compares(self.replicator.step):
                    with not_counted():
                        if checkpoints.is_due(self.replicator.step):
                            self.replicator.save()
            except BaseException as error:
                steps.throw(error)  # into the Replicator, which notifies the other replicas
        clock.pause()
        meter = handle.meter.as_dict(prefix="") | ({"exchange_seconds": 0.0} if clock.own else {})
        counted = {"meter": meter, "payload_by_unit": handle.meter.payload_by_unit, "wire": wire.carried()}
        mine = counted | {"links": links_of(context.rank, handle.meter), "compute": clock.computed()}
        mine |= {"total": record.seconds[-1], "coded": record.codes.payload, "cpu": record.took()["cpu"]}
        return self._run(handle, mine, clock.own)

    def _evaluate(self, handle: thinwire.Handle, step: int) -> None:
        learner, record, context = self.learner, self.record, self.context
        # Identical replicas differ only in buffers such as batch-norm statistics, so any of them is the model.
        mean = None if self.identical and not self.servers else handle.average()
        each = [] if self.identical else self._metric_of_each()
        others = _other_models(handle, self.plan.method)
        layers = handle.layers() if context.rank == self.first else {}
        if self.first:
            layers = {name: inspect.Layer(*layer) for name, layer in context.gather_notes(layers)[self.first].items()}
        record.count_again(handle.meter)
        if context.rank == 0:
            record.layers.add(layers)
            metric, metrics = learner.workload.metric, record.evaluate(learner, mean, validate=True)
            metric_of_others = {name: record.evaluate(learner, other)[metric] for name, other in others.items()}
            consensus = None if self.identical else handle.meter.consensus
            self.report(step=step, **record.add(metrics, consensus, each, metric_of_others))

    def _metric_of_each(self) -> list[float]:
        """The metric of each replica, after the last step; empty before."""
        if not self.record.is_last:
            return []
        mine = self.record.evaluate(self.learner, cores=self.plan.threads)[self.learner.workload.metric]
        return [float(value) for value in self.context.gather_notes(mine)]

    def _run(self, handle: thinwire.Handle, mine: dict[str, Any], own: bool) -> Run | None:
        """Gather the counts of all ranks; returns the run on replica 0."""
        record, groups, method = self.record, handle.groups, handle.method
        everyone = self.context.gather_notes(mine)
        losses = self.context.all_sum(record.losses.double())
        self.replicator.close()
        if self.context.rank:
            return None
        busiest = max(everyone, key=lambda counted: counted["meter"]["link_bytes"])
        trainers = [counted for r, counted in enumerate(everyone) if r not in self.servers]
        # Ranks that wait for each other take equally long, so only the bytes differ.
        trainer = max(trainers, key=lambda one: (one["total"] if own else 0.0, one["meter"]["link_bytes"]))
        return record.run(
            method=method,
            losses=losses / self.task.trainers,
            meter=busiest["meter"] | ({name: trainer["meter"][name] for name in CODING} if own else {}),
            total=max(counted["total"] for counted in everyone),
            compute=trainer["compute"],
            wire=busiest["wire"],
            payload_by_unit=busiest["payload_by_unit"],
            links=busiest["links"],
            groups=grouped(groups, [{int(r): n for r, n in one["links"]["sent"].items()} for one in everyone]),
            carried=[one["meter"]["link_bytes"] for one in everyone],
            learned=record.codes.as_dict(fmean(one["coded"] for one in trainers)),
            # Ranks in one process all count the CPU time of that process.
            cpu=mine["cpu"] if own else sum(one["cpu"] for one in everyone),
        )


def _other_models(handle: thinwire.Handle, method: str) -> dict[str, nn.Module]:
    """The models that a method has besides the mean of the replicas."""
    strategy = thinwire.strategy_of(method)
    if strategy.needs_loss:  # to choose a leader
        return {"leader": handle.leader()}
    return {"center": handle.center()} if strategy.has_center else {}


class InterfaceCounter:
    """Counts the bytes of training on this rank's network interface, in each direction; None without a link."""

    def __init__(self, context: thinwire.Context) -> None:
        self._context, self._bytes = context, [0, 0]
        self._since = links.counters() if links.inside() else None

    def pause(self) -> None:
        if self._since is not None:
            counted = zip(self._bytes, self._since, links.counters(), strict=True)
            self._bytes = [so_far + after - before for so_far, before, after in counted]

    def resume(self) -> None:
        if self._since is not None:
            self._since = links.counters()

    def carried(self) -> int | None:
        """Bytes in the busier direction, as in the meter; call while paused."""
        return None if self._since is None else max(self._bytes)

    def state_dict(self) -> dict[str, list[int]]:
        """The state of a paused counter."""
        return {"bytes": self._bytes}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self._bytes = state["bytes"]
