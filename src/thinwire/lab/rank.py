"""What torchrun starts on each rank: train by each plan in turn, and tell the parent how it goes."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

import thinwire
from thinwire.lab import links
from thinwire.lab.capture import Capture
from thinwire.lab.learner import Learner, Task, task_of
from thinwire.lab.phases import grouped
from thinwire.lab.plan import Plan
from thinwire.lab.record import Clock, Record, links_of, told_warnings
from thinwire.lab.runs import Run
from thinwire.lab.straggler import Pace, factor_of

TOLD = "thinwire-event "  # on standard output, before what is meant for the parent
# Buffers, such as running means, stay each rank's own: only what a method says goes over the link. Since torch 2.13,
# that has another name.
BUFFERS = ("forward_sync_buffers", "broadcast_buffers")
OWN_BUFFERS: dict[str, Any] = {
    next(name for name in BUFFERS if name in signature(DistributedDataParallel).parameters): False
}
MOST_LETTERS = 2000  # of an error, told in one piece
TELL_EVERY = 0.25  # seconds
Tell = Callable[..., None]


class AttachError(ValueError):
    """The method cannot be attached to the model: every rank raises it."""


def main() -> None:
    plans, done_folder = [Plan(**said) for said in json.loads(sys.argv[1])], Path(sys.argv[2])
    folders = [Path(folder) for folder in sys.argv[3:]]
    # The ranks meet over the store, which they reach before they enter their namespaces.
    store, rank, size = next(rendezvous("env://"))
    links.enter(rank)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

    def tell(**event: Any) -> None:
        if rank == 0:
            # In one piece, and short enough to stay one: others write to the same pipe.
            sys.stdout.write(f"{TOLD}{json.dumps(event)}\n")
            sys.stdout.flush()

    for number, plan in enumerate(plans):
        torch.set_num_threads(plan.threads)
        tell(begins=number)
        task = task_of(plan)
        tell(steps=task.steps, metric=task.workload.metric)
        try:
            run = train(plan, task, tell, folders[number] if folders else None)
        except (thinwire.NonFiniteError, AttachError) as error:  # which all ranks meet alike
            tell(failed=str(error)[:MOST_LETTERS])
        else:
            if run is not None:
                done = done_folder / f"{number}.json"
                done.write_text(json.dumps(asdict(run)))
                tell(done=str(done))
    dist.destroy_process_group()


def train(plan: Plan, task: Task, tell: Tell, folder: Path | None = None) -> Run | None:
    """One rank's part of a run, with all ranks of the default group; rank 0 tells how it goes, and returns the run."""
    rank = dist.get_rank()
    learner = Learner(plan, task, rank)
    with told_warnings() as warned:
        learner.warm_up(plan.method)
        model, handle = _attached(learner, plan.method)
        strategy = thinwire.strategy_of(plan.method)
        alike, serving = isinstance(strategy, thinwire.DataParallel), thinwire.servers_apart(strategy)
        first = next(r for r in range(plan.ranks) if r not in serving)  # whose residuals are told
        record, replica, told = Record(plan, task), thinwire.replica_of(learner.model), 0.0
        capture = Capture(plan, task, learner, folder)
        dist.barrier()
        aside, wire = Aside(), links.counters() if links.inside() else None

        def weigh() -> None:
            if record.is_due(ahead=1):
                clock.stop()  # on all ranks, each for itself: no rank waits for what another one looks at
                record.layers.weigh(replica.parameters)
                clock.go_on()

        learner.adjust(weigh if serving else None)
        clock, pace = Clock(), Pace(factor_of(plan.straggler, rank, plan.ranks))
        for step in range(1, task.steps + 1):
            pace.wait(clock.computed())
            handle.rate(learner.rate)
            with capture.at(step):
                loss = learner.backward(model)
            handle.loss(loss)
            if not serving:
                weigh()
            learner.update()
            record.step(loss, handle.meter, clock.read())
            record.phases.note(step, handle.factored())
            record.codes.note(step, handle.learning(), [handle.meter.said], replica.parameters)
            if record.is_due():
                dist.barrier()  # the clock goes on until the last rank has made the step
                clock.stop()
                aside.begin()
                mean = None if isinstance(model, DistributedDataParallel) else handle.average()
                each = [] if alike else _each(record, learner)
                others = _others(handle, plan.method)
                layers = [handle.layers() if rank == first else {}]
                if first:
                    dist.broadcast_object_list(layers, src=first)
                aside.end()
                record.count_again(handle.meter)
                if rank == 0:
                    record.layers.note(layers[0])
                    metric, metrics = learner.workload.metric, record.judge(learner, mean)
                    judged = {name: record.judge(learner, other)[metric] for name, other in others.items()}
                    apart = None if alike else handle.meter.consensus
                    tell(step=step, **record.note(metrics, apart, each, judged))
                dist.barrier()
                clock.go_on()
            if rank == 0 and (time.monotonic() - told > TELL_EVERY or step == task.steps):
                told = time.monotonic()
                tell(
                    step=step,
                    loss=None if learner.serves else float(loss),
                    payload_bytes=handle.meter.payload_bytes,
                    seconds=clock.read(),
                )
        compute = clock.computed() + pace.slept
        carried = aside.carried(wire) if wire else None
        handle.detach()
    counted = {"meter": handle.meter.as_dict(prefix=""), "said": handle.meter.said, "wire": carried}
    mine = counted | {"links": links_of(rank, handle.meter), "compute": compute, "total": record.seconds[-1]}
    mine |= {"coded": record.codes.payload}
    everyone: list[dict[str, Any]] = [{} for _ in range(plan.ranks)]
    dist.all_gather_object(everyone, mine)
    losses = torch.stack(record.losses).double()  # whose sum is the same in whatever order ranks are added
    dist.all_reduce(losses)
    if rank:
        return None
    busiest = max(everyone, key=lambda counted: counted["meter"]["link_bytes"])
    trainers = [counted for r, counted in enumerate(everyone) if r not in serving]
    trainer = max(trainers, key=lambda counted: counted["meter"]["link_bytes"])
    return record.run(
        method=handle.method,
        losses=losses / task.trainers,
        meter=busiest["meter"],
        total=max(counted["total"] for counted in everyone),
        compute=trainer["compute"],
        wire=busiest["wire"],
        said=busiest["said"],
        links=busiest["links"],
        groups=grouped(handle.groups, [{int(r): n for r, n in one["links"]["sent"].items()} for one in everyone]),
        carried=[one["meter"]["link_bytes"] for one in everyone],
        learned=record.codes.told(fmean(one["coded"] for one in trainers)),
        warned=warned,
    )


def _attached(learner: Learner, method: str) -> tuple[nn.Module, thinwire.Handle]:
    """The model to train, with a method between the ranks: under DDP, if that is what it takes the place of."""
    try:
        strategy = thinwire.strategy_of(method)
        if isinstance(strategy, thinwire.DataParallel) and not thinwire.servers_apart(strategy):
            model = DistributedDataParallel(learner.model, **OWN_BUFFERS)
            return model, thinwire.attach(model, method)
        return learner.model, thinwire.attach(learner.model, method, optimizer=learner.optimizer)
    except ValueError as error:
        raise AttachError(str(error)) from None


def _others(handle: thinwire.Handle, method: str) -> dict[str, nn.Module]:
    """Models that a method has besides the mean."""
    strategy = thinwire.strategy_of(method)
    if isinstance(strategy, thinwire.Leader):
        return {"leader": handle.leader()}
    return {"centre": handle.centre()} if isinstance(strategy, thinwire.Elastic) else {}


def _each(record: Record, learner: Learner) -> list[float]:
    """What each replica is worth, at the end."""
    if not record.is_last:
        return []
    each = [0.0] * record.plan.ranks
    dist.all_gather_object(each, record.judge(learner, cores=record.plan.threads)[learner.workload.metric])
    return each


class Aside:
    """What goes over a link beside training."""

    def __init__(self) -> None:
        self.bytes = [0, 0]

    def begin(self) -> None:
        self._before = links.counters() if links.inside() else None

    def end(self) -> None:
        if self._before is not None:
            dist.barrier()
            now = links.counters()
            self.bytes = [b + after - before for b, before, after in zip(self.bytes, self._before, now, strict=True)]

    def carried(self, since: tuple[int, int]) -> int:
        """In the busier direction, as in the meter."""
        counted = zip(since, links.counters(), self.bytes, strict=True)
        return max(after - before - beside for before, after, beside in counted)


if __name__ == "__main__":
    main()
