"""One replica's part of a run, whatever the replicas are: processes, or threads of one."""

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
from thinwire.lab.runner.checkpoint_schedule import Cadence
from thinwire.lab.runner.clocks import Clock
from thinwire.lab.runner.learner import Learner, Task
from thinwire.lab.runner.plan import Plan
from thinwire.lab.runner.run_folder import Place

TELL_EVERY = 0.25  # seconds
CODING = ("encode_seconds", "decode_seconds")
Tell = Callable[..., None]
MakeClock = Callable[[int, inspect.Meter], Clock]  # of a rank, with what it has said


class AttachError(ValueError):
    """The method cannot be attached to the model: every rank raises it."""


class Trainer:
    """Trains a replica by a plan; replica 0 tells how it goes.

    With a folder for checkpoints, it saves one whenever `interval` seconds have passed, and goes on from what is there.
    """

    def __init__(
        self,
        plan: Plan,
        task: Task,
        tell: Tell,
        clock: MakeClock,
        place: Place,
        warned: list[str],
        after_first: Callable[[], None] = lambda: None,  # step, on all replicas
    ) -> None:
        self.plan, self.task, self.tell = plan, task, tell
        # Only what a method says goes over the link: plans have been compared before.
        self.replicator = thinwire.Replicator(plan.method, checked=False, device="cpu")
        self.context = self.replicator.context
        self.learner = Learner(plan, task, self.context.rank)
        strategy = thinwire.strategy_of(plan.method)
        self.alike, self.serving = not strategy.replicas_differ, strategy.dedicated_servers
        self.first = next(r for r in range(plan.size) if r not in self.serving)  # whose residuals are told
        self.record = Record(plan, task, warned)
        self.draws = False
        self.make_clock, self.place, self.after_first = clock, place, after_first

    def warm_up(self) -> None:
        """Meet the costs of the first steps, and see whether the model draws random numbers."""
        self.draws = self.learner.warm_up(self.plan.method)

    def train(self) -> Run | None:
        """All steps; the run, on replica 0."""
        plan, learner, record, context = self.plan, self.learner, self.record, self.context
        try:
            model, _ = self.replicator.wrap(learner.model, learner.optimizer, overlap=True)
        except ValueError as error:
            self.replicator.close()
            raise AttachError(str(error)) from None
        (handle,) = self.replicator.handles
        replica, told = simulate.replica_of(learner.model), 0.0
        capture = Capture(plan, self.task, learner, self.place.folder)
        context.barrier()
        wire, clock = Wire(context), self.make_clock(context.rank, handle.meter)

        def weigh() -> None:
            if record.is_due(ahead=1):
                clock.stop()  # on all ranks, each for itself: no rank waits for what another one looks at
                record.layers.weigh(replica.parameters)
                clock.go_on()

        agreed_in_step = self.alike and model is learner.model  # and not in backward, as under DDP
        learner.adjust(weigh if agreed_in_step else None)

        @contextmanager
        def aside() -> Iterator[None]:
            """What is no part of training: it takes no time and no bytes, and all ranks begin and end it together."""
            context.barrier()  # the clock goes on until the last rank has made the step
            clock.stop()
            wire.pause()
            yield
            context.barrier()
            wire.go_on()
            clock.go_on()

        def step_fn(context: thinwire.Context, step: int) -> None:
            nonlocal told
            clock.wait()
            handle.set_lr(learner.rate)
            with capture.at(step):
                loss = learner.backward(model)
            handle.report_loss(loss)
            if not agreed_in_step:
                weigh()
            learner.update()
            record.step(loss, handle.meter, clock.read())
            record.phases.note(step, handle.factored())
            record.codes.note(step, handle.learning(), [handle.meter.payload_by_unit], replica.parameters)
            if record.is_due():
                with aside():
                    self._evaluate(handle, step)
            if context.rank == 0 and (time.monotonic() - told > TELL_EVERY or step == self.task.steps):
                told = time.monotonic()
                self.tell(
                    step=step,
                    loss=None if learner.serves else float(loss),
                    payload_bytes=handle.meter.payload_bytes,
                    seconds=clock.read(),
                    wall=record.took()["wall"],
                )

        def begin(context: thinwire.Context) -> range:
            """The run begins here, or goes on: what was saved has been loaded by now."""
            capture.begin()
            if record.made and context.rank == 0:
                self.tell(resumed=record.made)
            clock.go_on()
            wire.go_on()
            return range(1, self.task.steps + 1)

        self.replicator.keep(
            schedule=learner.schedule, learner=learner, record=record, clock=clock, wire=wire, capture=capture
        )
        cadence = Cadence(self.place.interval, context)
        steps = self.replicator.iterate(step_fn, begin, checkpoint=self.place.checkpoints, keep=1)
        first = True
        for _ in steps:
            try:
                if first:
                    with aside():
                        self.after_first()
                    first = False
                if record.is_last:
                    break
                if cadence.looks(self.replicator.step):
                    with aside():
                        if cadence.is_due(self.replicator.step):
                            self.replicator.save()
            except BaseException as error:
                steps.throw(error)  # to where the other replicas are told of it
        clock.stop()
        meter = handle.meter.as_dict(prefix="") | ({"exchange_seconds": 0.0} if clock.own else {})
        counted = {"meter": meter, "said": handle.meter.payload_by_unit, "wire": wire.carried()}
        mine = counted | {"links": links_of(context.rank, handle.meter), "compute": clock.computed()}
        mine |= {"total": record.seconds[-1], "coded": record.codes.payload, "cpu": record.took()["cpu"]}
        return self._told(handle, mine, clock.own)

    def _evaluate(self, handle: thinwire.Handle, step: int) -> None:
        learner, record, context = self.learner, self.record, self.context
        # Where replicas are alike, each is the model, with statistics of its own.
        mean = None if self.alike and not self.serving else handle.average()
        each = [] if self.alike else self._each()
        others = _others(handle, self.plan.method)
        layers = handle.layers() if context.rank == self.first else {}
        if self.first:
            layers = {name: inspect.Layer(*told) for name, told in context.gather_notes(layers)[self.first].items()}
        record.count_again(handle.meter)
        if context.rank == 0:
            record.layers.note(layers)
            metric, metrics = learner.workload.metric, record.judge(learner, mean, validate=True)
            judged = {name: record.judge(learner, other)[metric] for name, other in others.items()}
            apart = None if self.alike else handle.meter.consensus
            self.tell(step=step, **record.note(metrics, apart, each, judged))

    def _each(self) -> list[float]:
        """What each replica is worth, at the end."""
        if not self.record.is_last:
            return []
        judged = self.record.judge(self.learner, cores=self.plan.threads)[self.learner.workload.metric]
        return [float(value) for value in self.context.gather_notes(judged)]

    def _told(self, handle: thinwire.Handle, mine: dict[str, Any], own: bool) -> Run | None:
        record, groups, method = self.record, handle.groups, handle.method
        everyone = self.context.gather_notes(mine)
        losses = self.context.all_sum(record.losses.double())
        self.replicator.close()
        if self.context.rank:
            return None
        busiest = max(everyone, key=lambda counted: counted["meter"]["link_bytes"])
        trainers = [counted for r, counted in enumerate(everyone) if r not in self.serving]
        # Where ranks wait for each other, all take as long.
        trainer = max(trainers, key=lambda one: (one["total"] if own else 0.0, one["meter"]["link_bytes"]))
        return record.run(
            method=method,
            losses=losses / self.task.trainers,
            meter=busiest["meter"] | ({name: trainer["meter"][name] for name in CODING} if own else {}),
            total=max(counted["total"] for counted in everyone),
            compute=trainer["compute"],
            wire=busiest["wire"],
            said=busiest["said"],
            links=busiest["links"],
            groups=grouped(groups, [{int(r): n for r, n in one["links"]["sent"].items()} for one in everyone]),
            carried=[one["meter"]["link_bytes"] for one in everyone],
            learned=record.codes.told(fmean(one["coded"] for one in trainers)),
            # Ranks of one process all count the whole of it.
            cpu=mine["cpu"] if own else sum(one["cpu"] for one in everyone),
        )


def _others(handle: thinwire.Handle, method: str) -> dict[str, nn.Module]:
    """Models that a method has besides the mean."""
    strategy = thinwire.strategy_of(method)
    if strategy.needs_loss:  # to choose a leader by
        return {"leader": handle.leader()}
    return {"center": handle.center()} if strategy.has_center else {}


class Wire:
    """What the network interface of this rank has carried for training, in each direction; None without one."""

    def __init__(self, context: thinwire.Context) -> None:
        self._context, self._bytes = context, [0, 0]
        self._since = links.counters() if links.inside() else None

    def pause(self) -> None:
        if self._since is not None:
            counted = zip(self._bytes, self._since, links.counters(), strict=True)
            self._bytes = [so_far + after - before for so_far, before, after in counted]

    def go_on(self) -> None:
        if self._since is not None:
            self._since = links.counters()

    def carried(self) -> int | None:
        """In the busier direction, as in the meter; while it is paused."""
        return None if self._since is None else max(self._bytes)

    def state_dict(self) -> dict[str, list[int]]:
        """While it is paused."""
        return {"bytes": self._bytes}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self._bytes = state["bytes"]
